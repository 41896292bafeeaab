"""Writes the blocking client from the async one: `python client/sync/generate.py`. It is not part of the package.

Each public method of an async class becomes a method of the same signature and docstring, without `async`, which runs the
async one in the thread of the portal. TEMPLATES holds the members that have to differ.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SYNC: Final = Path(__file__).parent
CLIENT: Final = SYNC.parent

SOURCES: Final = {
    "__init__": "__init__.py",
    "client": "client.py",
    "connect": "connect.py",
    "langchain": "integrations/langchain.py",
    "runs": "runs.py",
    "scopes": "scopes.py",
    "session": "session.py",
    "state": "state.py",
}
"""The generated modules, each with the async module it is made from."""
SIBLINGS: Final = {
    "Client": "client",
    "connect": "connect",
    "AutoSession": "scopes",
    "CallOptions": "portal",
    "Run": "runs",
    "SessionBlock": "scopes",
    "Session": "session",
    "State": "state",
    "ElicitationCallback": "portal",
    "Portal": "portal",
    "SummaryFunction": "portal",
    "ProgressCallback": "portal",
    "async_call_options": "portal",
    "in_thread": "portal",
}
"""The names of the blocking client, each with its module."""
INTERNAL: Final = {
    "Client": {"calls", "requests"},
    "Session": {"call_own", "close_quietly", "mark_closed"},
    "SessionBlock": {"open", "close"},
    "Run": {"begin", "end"},
    "AutoSession": set[str](),
    "State": set[str](),
}
"""The classes, each with its methods that only the async client has."""

TEMPLATES: Final = {
    "Client": '''
def __init__(self, inner: AsyncClient, portal: Portal | None = None) -> None:
    self.inner = inner
    """The same connection of the async client, whose event loop is in another thread."""
    self.portal = portal or Portal()

def __repr__(self) -> str:
    return repr(self.inner)

def __enter__(self) -> Self:
    """Connect.

    Raises:
        ServerUnreachable: no server answers there, or it is no Statehold.
    """
    if self.portal.is_started:
        raise RuntimeError("a client is entered once; connect() makes another one")
    self.portal.start(self)
    try:
        self.portal.run(self.inner.__aenter__)
    except BaseException:
        self.close()
        raise
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    self.close()

def close(self) -> None:
    """End the connection, and the sessions that auto_session() made. May be called twice.

    The end of the program closes a client that is still open.
    """
    if self.portal.is_started:
        try:
            self.portal.run(self.inner.aclose)
        finally:
            self.portal.stop()
''',
    "Session": '''
def __init__(self, portal: Portal, inner: AsyncSession) -> None:
    self.portal = portal
    self.inner = inner
    """The same handle of the async client."""
    self.state = State(portal, inner.state)

def __repr__(self) -> str:
    return repr(self.inner)

def __eq__(self, other: object) -> bool:
    return isinstance(other, Session) and self.inner is other.inner

def __hash__(self) -> int:
    return hash(self.inner)
''',
    "State": """
def __init__(self, portal: Portal, inner: AsyncState) -> None:
    self.portal = portal
    self.inner = inner

def __repr__(self) -> str:
    return repr(self.inner)
""",
    "Run": """
def __init__(self, portal: Portal, inner: AsyncRun) -> None:
    self.portal = portal
    self.inner = inner
    self._use: AbstractContextManager[object] | None = None

def __repr__(self) -> str:
    return repr(self.inner)

def __enter__(self) -> Self:
    self.portal.run(self.inner.begin)
    self._use = self.inner.use()
    self._use.__enter__()
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    assert self._use is not None
    self._use.__exit__(None, None, None)
    self.portal.run(self.inner.end, error)
""",
    "SessionBlock": """
def __init__(self, portal: Portal, inner: AsyncSessionBlock) -> None:
    self.portal = portal
    self.inner = inner
    self._use: AbstractContextManager[Session] | None = None

def __enter__(self) -> Session:
    try:
        session = Session(self.portal, self.portal.run(self.inner.open))
    except Exception:
        raise
    except BaseException:
        # Interrupted after the session was opened in the loop's thread and before this thread knew.
        self.portal.run(self.inner.close)
        raise
    self._use = session.use()
    return self._use.__enter__()

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    assert self._use is not None
    self._use.__exit__(None, None, None)
    self.portal.run(self.inner.close)
""",
    "AutoSession": """
def __init__(self, portal: Portal, inner: AsyncAutoSession) -> None:
    self.portal = portal
    self.inner = inner

def __enter__(self) -> Self:
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    self.end()
""",
}
"""The members of each class that are not made from the async one."""
_CALL: Final = """
arguments = {**mapping, **arguments} if mapping else arguments
return self.call_tool(tool, arguments, run_id=run_id)
"""
_USE: Final = "with self.inner.use():\n    yield self"

BODIES: Final = {
    "Client.call": _CALL,
    "Run.use": _USE,
    "Session.call": _CALL,
    "Session.summarize": """
text, topics, name = summary_fields(function(self.messages()))
summary = self.summary(text, topics=topics)
if name is not None and self.name is None:
    with suppress(NameTaken):
        self.rename(name)
return summary
""",
    "Session.use": _USE,
    "Session.langchain_tools": """
from .langchain import langchain_tools

return langchain_tools(
    self,
    names=names,
    images=images,
    handle_tool_error=handle_tool_error,
    read_timeout_seconds=read_timeout_seconds,
)
""",
    "State.change": """
while True:
    current = self.read(path)
    value = apply_change(function, current, default)
    try:
        version = self.replace(value, if_version=current.version, path=path)
    except StateConflict:
        continue
    return StateValue(True, value, version)
""",
    "langchain_tools": """
def bind(tool: Tool) -> StructuredTool:
    def func(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
        try:
            result = source.call_tool(
                tool.name, arguments, read_timeout_seconds=read_timeout_seconds
            )
        except SessionError as error:
            raise tool_exception(error, images=images) from error
        return content_and_artifact(result, images=images)

    return build_tool(tool, handle_tool_error, func=func)

return [bind(tool) for tool in default_tools(source.list_tools(names=names), names)]
""",
}
"""Bodies of functions whose signature and docstring are the async ones."""
FUNCTIONS: Final = ("connect", "langchain_tools")
PROTOCOLS: Final = ("ToolSource",)
WORDS: Final = (
    ("async with", "with"),
    ("`await", "`"),
    (" await ", " "),
    ("in this task or thread", "in this thread"),
    ("Any task", "Any thread"),
    ("of this task", "of this thread"),
    ("The Python client:", "The Python client for programs that block:"),
)
"""Replacements in docstrings."""


def generate(name: str) -> str:
    """Return the source of one module of the blocking client."""
    source = CLIENT / SOURCES[name]
    tree = ast.parse(source.read_text(encoding="utf-8"))
    body = list(_package(tree) if name == "__init__" else _module(tree, name))
    text = "\n".join([f'"""{_docstring(tree)}"""', f"# {_notice(source)}", *body])
    text = _run_ruff(["check", "--fix", "--select", "F401,I"], text, name)
    text = text.replace("if TYPE_CHECKING:\n    pass\n", "")
    text = _run_ruff(["check", "--fix", "--select", "F401,I"], text, name)
    return _run_ruff(["format"], text, name)


def _notice(source: Path) -> str:
    origin = source.relative_to(CLIENT.parent).as_posix()
    return f"Generated by client/sync/generate.py from {origin}: change that file, not this one.\n"


def _run_ruff(command: list[str], text: str, name: str) -> str:
    arguments = ["ruff", *command, "--quiet", "--stdin-filename", str(SYNC / f"{name}.py"), "-"]
    ran = subprocess.run(
        [sys.executable, "-m", *arguments], input=text, capture_output=True, text=True, cwd=CLIENT
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{name}: {ran.stdout}{ran.stderr}\n{text}")
    return ran.stdout


def _package(tree: ast.Module) -> Iterator[str]:
    for node in tree.body[1:]:
        if not isinstance(node, ast.ImportFrom):
            yield ast.unparse(_deepen_imports(node))
        elif node.level == 0:
            yield ast.unparse(node)
        else:
            yield from _import(node)


def _import(node: ast.ImportFrom) -> Iterator[str]:
    """Yield the imports for one of the async client: its own names come from the generated modules."""
    for alias in node.names:
        sibling = SIBLINGS.get(alias.name)
        module = f".{sibling}" if sibling else f".{'.' * node.level}{node.module or ''}"
        yield f"from {module} import {alias.name}"


def _deepen_imports(node: ast.stmt) -> ast.stmt:
    for each in ast.walk(node):
        if isinstance(each, ast.ImportFrom) and each.level:
            each.level += 1
    return node


def _module(tree: ast.Module, name: str) -> Iterator[str]:
    names = {node.name for node in _definitions(tree)}
    yield from _imports(tree, name)
    for node in _definitions(tree):
        if isinstance(node, ast.ClassDef):
            yield _protocol(node) if node.name in PROTOCOLS else _class(node)
        else:
            yield _function(node, "")
    yield f"__all__ = {sorted(names)}"


def _definitions(tree: ast.Module) -> list[ast.ClassDef | ast.AsyncFunctionDef | ast.FunctionDef]:
    names = (*INTERNAL, *FUNCTIONS, *PROTOCOLS)
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.AsyncFunctionDef | ast.FunctionDef)
        and node.name in names
    ]


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield every import that the module may need; ruff removes the others."""
    origin = SOURCES[name].removesuffix(".py").replace("/", ".")
    depth = 2 + SOURCES[name].count("/")
    typing: list[str] = []
    yield "from __future__ import annotations"
    yield "from contextlib import AbstractContextManager"
    yield "from typing import TYPE_CHECKING"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from _relative_import(node, depth)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield ast.unparse(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                typing += _relative_import(each, depth) if each.level else [ast.unparse(each)]
        elif isinstance(node, ast.Try):
            typing += [ast.unparse(each) for each in node.body]
    local = [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    local += [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    names = {node.name for node in _definitions(tree)}
    for each in local:
        if each not in names and each not in SIBLINGS:
            yield f"from ..{origin} import {each}"
    for each in INTERNAL:
        if each in names:
            yield f"from ..{origin} import {each} as Async{each}"
    if name == "connect":
        yield "from ..connect import connect as connect_async"
    for each, module in SIBLINGS.items():
        if module == "portal" or _may_import(name, module):
            yield f"from .{module} import {each}"
    if typing:
        yield "if TYPE_CHECKING:"
        yield from (f"    {line}" for line in typing)


ORDER: Final = ("state", "runs", "session", "scopes", "client", "connect")
"""The modules from the lowest to the highest."""


def _may_import(name: str, module: str) -> bool:
    return name in ORDER and ORDER.index(module) < ORDER.index(name)


def _relative_import(node: ast.ImportFrom, depth: int) -> list[str]:
    """Return the imports of the async module, as seen from the folder of the blocking one."""
    # A module of integrations/ is one folder below the client, as the blocking ones are.
    folder = ".integrations" if depth == 3 and node.level == 1 else ""
    dots = "." * (node.level + 1) if depth == 2 or folder else "." * node.level
    module = ".".join(part for part in (folder.removeprefix("."), node.module) if part)
    return [
        f"from {dots}{module} import {ast.unparse(each)}"
        for each in node.names
        if each.name not in SIBLINGS
    ]


def _protocol(node: ast.ClassDef) -> str:
    lines = [f"class {node.name}(Protocol):", f'    """{_docstring(node)}"""']
    for each in node.body:
        if isinstance(each, ast.AsyncFunctionDef):
            returns = "" if each.returns is None else f" -> {ast.unparse(each.returns)}"
            lines.append(f"    def {each.name}({ast.unparse(each.args)}){returns}: ...")
    return "\n".join(lines)


def _class(node: ast.ClassDef) -> str:
    lines = [f"class {node.name}:", f'    """{_docstring(node)}"""', _indent(TEMPLATES[node.name])]
    for index, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            after = node.body[index + 1]
            doc = after.value if isinstance(after, ast.Expr) else None
            text = doc.value if isinstance(doc, ast.Constant) else None
            lines.append(_indent(_attribute(each.target.id, ast.unparse(each.annotation), text)))
        elif isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef) and _is_public(node, each):
            lines.append(_indent(_function(each, f"{node.name}.")))
    return "\n".join(lines)


def _is_public(owner: ast.ClassDef, node: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    name = node.name
    return (
        not name.startswith("_")
        and name not in INTERNAL[owner.name]
        and f"def {name}(" not in TEMPLATES[owner.name]
        and name != "aclose"
    )


def _attribute(name: str, annotation: str, doc: object) -> str:
    lines = ["@property", f"def {name}(self) -> {annotation}:"]
    if isinstance(doc, str):
        lines.append(f'    """{_reword(doc)}"""')
    return "\n".join([*lines, f"    return self.inner.{name}"])


def _function(node: ast.AsyncFunctionDef | ast.FunctionDef, owner: str) -> str:
    decorators = [f"@{ast.unparse(each)}" for each in node.decorator_list]
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    lines = [*decorators, f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"]
    if ast.get_docstring(node) is not None:
        lines.append(f'    """{_docstring(node)}"""')
    body = BODIES.get(owner + node.name)
    return "\n".join([*lines, _indent(_body(node, owner, returns) if body is None else body)])


def _body(node: ast.AsyncFunctionDef | ast.FunctionDef, owner: str, returns: str) -> str:
    if any(ast.unparse(each) == "property" for each in node.decorator_list):
        return _return(f"self.inner.{node.name}", returns)
    arguments = ", ".join(_arguments(node.args))
    if not owner:
        return f"return Client({node.name}_async({arguments}))"
    if isinstance(node, ast.AsyncFunctionDef):
        arguments = f", {arguments}" if arguments else ""
        return _return(f"self.portal.run(self.inner.{node.name}{arguments})", returns)
    return _return(f"self.inner.{node.name}({arguments})", returns)


def _arguments(args: ast.arguments) -> Iterator[str]:
    """Yield the arguments with which the async function is called."""
    for each in (*args.posonlyargs, *args.args):
        if each.arg != "self":
            yield _value(each)
    for each in args.kwonlyargs:
        yield f"{each.arg}={_value(each)}"
    if args.kwarg is not None:
        yield f"**{_value(args.kwarg)}"


def _value(arg: ast.arg) -> str:
    name = arg.arg
    match "" if arg.annotation is None else ast.unparse(arg.annotation):
        case "Session | str":
            return f"{name} if isinstance({name}, str) else {name}.inner"
        case "Sequence[Session | str]":
            return f"[each if isinstance(each, str) else each.inner for each in {name}]"
        case "Unpack[CallOptions]":
            return f"async_call_options({name})"
        case "ElicitationCallback | None":
            return f"None if {name} is None else in_thread({name}, {name!r})"
        case _:
            return name


def _return(value: str, returns: str) -> str:
    match returns:
        case "None":
            return value
        case "Session" | "SessionBlock" | "AutoSession" | "Run":
            return f"return {returns}(self.portal, {value})"
        case "Session | None":
            wrap = "return None if session is None else Session(self.portal, session)"
            return f"session = {value}\n{wrap}"
        case "list[Session]":
            return f"return [Session(self.portal, each) for each in {value}]"
        case "Client":
            return f"return Client({value}, self.portal)"
        case _:
            return f"return {value}"


def _docstring(node: ast.Module | ast.ClassDef | ast.AsyncFunctionDef | ast.FunctionDef) -> str:
    """Return the docstring, with the indentation that it has in the async module."""
    return _reword(ast.get_docstring(node, clean=False) or "")


def _reword(text: str) -> str:
    for old, new in WORDS:
        text = text.replace(old, new)
    return text


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.strip("\n").split("\n"))


def main() -> None:
    for name in SOURCES:
        (SYNC / f"{name}.py").write_text(generate(name), encoding="utf-8")


__all__ = ["SOURCES", "SYNC", "generate"]

if __name__ == "__main__":
    main()
