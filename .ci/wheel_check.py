"""Tries a release that .ci/build made: `python wheel_check.py DIST`. Needs uv, and nothing else but the standard library.

It installs the wheel into an empty environment, drives its `statehold` over stdio with raw JSON-RPC lines, puts the small
server of tests/upstreams behind it, and checks that a session counts, that another one counts for itself, that stdout
carries nothing but MCP, and that a closed stdin ends the process with 0.
Then it looks at what came with the wheel: a man page and completions, no LangChain, no browser, no test tool, and a client
that starts nothing when it is imported. The SBOM, a CycloneDX document, must name the wheel and every package that came with
it. The bundle for desktop clients is unpacked and started as its manifest says, for a real session; and the documents that
describe the release must agree with the wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

UPSTREAM = Path(__file__).resolve().parent.parent / "tests" / "upstreams" / "quick.py"
SECONDS = 60

LOOK = """
import json, sys, threading
from importlib.metadata import distributions
from pathlib import Path
import statehold.client, statehold.client.sync
import playwright
installed = {each.metadata["Name"].lower(): each.version for each in distributions()}
task = Path("/proc/self/task")
children = [each for thread in task.glob("*/children") for each in thread.read_text().split()]
browsers = [str(each) for each in Path(playwright.__file__).parent.rglob(".local-browsers")]
heavy = [name for name in ("mcp", "starlette", "uvicorn", "sqlalchemy") if name in sys.modules]
print(json.dumps([installed, children, threading.active_count(), browsers, heavy]))
"""
SHARED = (
    "man/man1/statehold.1",
    "bash-completion/completions/statehold",
    "fish/vendor_completions.d/statehold.fish",
    "zsh/site-functions/_statehold",
)
UNWANTED = ("langchain", "langgraph", "langsmith", "pytest", "hypothesis", "psutil", "fastmcp")


class Conversation:
    """One stdio connection. A watchdog ends the process when the whole takes too long."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd="/")
        self.watchdog = threading.Timer(SECONDS, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.requests = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its result; notifications before it are skipped."""
        assert self.process.stdout is not None
        self.requests += 1
        self.send({"id": self.requests, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.requests and "method" not in message:
                assert "result" in message, f"{method} was refused: {message['error']}"
                return message["result"]
        raise AssertionError(f"no answer to {method}; exit code {self.process.wait(5)}")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), f"{tool} failed: {result['content']}"
        return result

    def close(self) -> int:
        """Close stdin and return the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        for line in rest.splitlines():
            json.loads(line)
        code = self.process.wait(SECONDS)
        self.watchdog.cancel()
        return code


def main(dist: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        check(Path(dist).resolve(), Path(folder))


def check(dist: Path, data: Path) -> None:
    # Where Playwright would download browsers to.
    os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(data / "browsers")
    (wheel,) = dist.glob("statehold-*.whl")
    environment = data / "empty"
    run("uv", "venv", "--quiet", str(environment))
    run("uv", "pip", "install", "--quiet", "--python", str(environment), str(wheel))
    python, statehold = environment / "bin" / "python", environment / "bin" / "statehold"
    say(run(str(python), "-c", "import statehold; print(statehold.__file__)"))
    say(run(str(statehold), "--version"))
    for name in SHARED:
        assert (environment / "share" / name).stat().st_size, f"the wheel has no {name}"
    check_sessions(statehold, data)
    installed = look(python, data / "browsers")
    (sbom,) = dist.glob("*.cdx.json")
    check_sbom(sbom, installed)
    check_bundle(dist / "statehold.mcpb", data)
    check_documents(dist, installed["statehold"])


def run(*command: str) -> str:
    """Run a command in / and return its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/")
    return done.stdout.strip()


def check_sessions(statehold: Path, data: Path) -> None:
    services = data / "services.json"
    server = {"command": sys.executable, "args": [str(UPSTREAM)]}
    services.write_text(json.dumps({"mcpServers": {"quick": server}}))
    command = [str(statehold), "--services", str(services), "--data", str(data / "kept")]
    talk, tools = greeted(command)
    assert {"session_create", "session_close", "inc"} <= tools, tools
    first, second = (created(talk) for _ in range(2))
    counts = [counted(talk, session) for session in (first, first, second, first)]
    assert counts == ["1", "2", "1", "3"], counts
    talk.call("session_close", session_id=first)
    code = talk.close()
    assert code == 0, f"exit code {code} after stdin was closed"
    say(f"{len(tools)} tools, two sessions, counts {counts}, exit code 0")


def greeted(command: list[str]) -> tuple[Conversation, set[str]]:
    """Start a server and return the conversation with it, and the names of its tools."""
    talk = Conversation(command)
    client = {"name": "wheel-check", "version": "1"}
    hello = talk.ask(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client},
    )
    talk.send({"method": "notifications/initialized"})
    info = hello["serverInfo"]
    say(f"{info['name']} {info['version']}, {hello['protocolVersion']}")
    return talk, {tool["name"] for tool in talk.ask("tools/list", {})["tools"]}


def check_bundle(bundle: Path, data: Path) -> None:
    """Check that the bundle starts with the command of its manifest, alone, and has a session."""
    folder = data / "bundle"
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in (manifest["icon"], manifest["server"]["entry_point"]):
        assert (folder / name).is_file(), f"the bundle has no {name}"
    start = manifest["server"]["mcp_config"]
    words = [start["command"], *start["args"]]
    command = [word.replace("${__dirname}", str(folder)) for word in words]
    os.environ["STATEHOLD_DATA"] = str(data / "bundle-data")
    try:
        talk, tools = greeted(command)
        assert {"session_create", "browser_navigate"} <= tools, tools
        created(talk)
        code = talk.close()
    finally:
        run(*command, "stop")
        del os.environ["STATEHOLD_DATA"]
    assert code == 0, f"exit code {code} of the bundle after stdin was closed"
    say(f"a session from the bundle, {bundle.stat().st_size // 1024} KiB")


def check_documents(dist: Path, version: str) -> None:
    """Check that server.json, the server card and the catalog describe the wheel and the bundle."""
    with zipfile.ZipFile(next(dist.glob("statehold-*.whl"))) as wheel:
        metadata = wheel.read(f"statehold-{version}.dist-info/METADATA").decode()
    server = json.loads((dist / "server.json").read_text())
    card = json.loads((dist / "server-card.json").read_text())
    (entry,) = json.loads((dist / "ai-catalog.json").read_text())["entries"]
    assert entry["data"] == card
    for document in (server, card):
        assert document["version"] == version, document
        # A registry takes no longer ones.
        assert len(document["description"]) <= 100
        assert f"\nSummary: {document['description']}\n" in metadata
        assert document["name"] == server["name"]
    python, bundle = server["packages"]
    assert python["version"] == version
    assert (
        bundle["fileSha256"] == hashlib.sha256((dist / "statehold.mcpb").read_bytes()).hexdigest()
    )
    if os.environ.get("GITHUB_REF_TYPE") == "tag":
        assert f"mcp-name: {server['name']} " in metadata, (
            "the registry takes no wheel without its name"
        )
    say(f"the documents describe {server['name']} {version}")


def check_sbom(path: Path, installed: dict[str, str]) -> None:
    """Check that the document is CycloneDX, names the wheel itself, and has an entry with hashes for every other package."""
    document: dict[str, Any] = json.loads(path.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    wheel = document["metadata"]["component"]
    assert (wheel["name"], wheel["version"]) == ("statehold", installed["statehold"]), wheel
    listed = {normalize(each["name"]): each for each in document["components"]}
    missing = {normalize(name) for name in installed} - listed.keys() - {"statehold"}
    assert not missing, f"the SBOM lacks {sorted(missing)}"
    for name, component in listed.items():
        assert component["purl"].startswith(f"pkg:pypi/{name}@"), component["purl"]
        assert any(each.get("hashes") for each in component["externalReferences"]), name
    say(f"the SBOM names all of the {len(installed)} packages")


def normalize(name: str) -> str:
    """Return the name of a package as package indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def look(python: Path, browsers: Path) -> dict[str, str]:
    """Look at what was installed with the wheel, and at what an import of the client does. Return the packages."""
    done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=True, cwd="/")
    installed, children, threads, found, heavy = json.loads(done.stdout)
    unwanted = [name for name in installed if name.startswith(UNWANTED)]
    assert unwanted == [], f"the wheel brings {unwanted}"
    assert not found, f"the wheel brings browsers: {found}"
    assert not browsers.exists(), "a browser was downloaded"
    assert (children, threads, heavy) == ([], 1, []), "the import of the client starts something"
    say(f"{len(installed)} packages, no LangChain, no browser; the client imports alone")
    return installed


def created(talk: Conversation) -> str:
    result = talk.call("session_create")
    session = result["structuredContent"]["session_id"]
    assert session.startswith("sh_"), session
    return session


def counted(talk: Conversation, session: str) -> str:
    return talk.call("inc", session_id=session)["content"][-1]["text"]


def say(what: str) -> None:
    sys.stdout.write(f"wheel_check: {what}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
