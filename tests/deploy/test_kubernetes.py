"""The manifests of Kubernetes agree with its schemas, with one another, with the image and with Statehold."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from statehold.server.config.model import Config
from statehold.sessions.transitions.close import DRAIN_BOUND

kubernetes_validate: Any = pytest.importorskip("kubernetes_validate")

pytestmark = pytest.mark.thorough

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDER = DEPLOY / "kubernetes"
VERSIONS = ("1.30", kubernetes_validate.latest_version())
OVERLAYS = ("base", "dev", "production")
SPARE_SECONDS = 10
KUSTOMIZE = next((name for name in ("kustomize", "kubectl") if shutil.which(name)), None)

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(text) if document is not None]


def manifests() -> Iterator[tuple[Path, Manifest]]:
    """All manifests but those of Kustomize itself, with their files."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for document in documents(path.read_text()):
                yield path, document


def kustomization(folder: Path) -> Manifest:
    (document,) = documents((folder / "kustomization.yaml").read_text())
    return document


def resources(folder: Path) -> list[Manifest]:
    """The manifests of an overlay before its patches."""
    results: list[Manifest] = []
    for name in kustomization(folder).get("resources", []):
        path = (folder / name).resolve()
        results += resources(path) if path.is_dir() else documents(path.read_text())
    return results


def rendered(folder: Path) -> list[Manifest]:
    if KUSTOMIZE is None:
        pytest.skip("there is no kustomize and no kubectl")
    command = [
        KUSTOMIZE,
        "build" if KUSTOMIZE == "kustomize" else "kustomize",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def name_of(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def one(manifests: list[Manifest], kind: str, name: str = "statehold") -> Manifest:
    (match,) = [each for each in manifests if name_of(each) == (kind, name)]
    return match


@pytest.fixture
def base() -> list[Manifest]:
    return resources(FOLDER / "base")


@pytest.fixture
def pod(base: list[Manifest]) -> Manifest:
    return one(base, "Deployment")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Manifest) -> Manifest:
    (container,) = pod["containers"]
    return container


@pytest.fixture
def settings() -> Manifest:
    return tomllib.loads((FOLDER / "base" / "statehold.toml").read_text())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rendered_manifests_agree_with_the_schemas(overlay: str, version: str) -> None:
    for manifest in rendered(FOLDER / overlay):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_component_for_the_browser_agrees_with_the_schemas(
    tmp_path: Path, version: str
) -> None:
    overlay = {
        "resources": [os.path.relpath(FOLDER / "production", tmp_path.resolve())],
        "components": [os.path.relpath(FOLDER / "browser", tmp_path.resolve())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    deployment = one(rendered(tmp_path), "Deployment")
    kubernetes_validate.validate(deployment, version, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_agree_with_the_schemas(version: str) -> None:
    patches = {path for path, _ in patches_of_all()}
    for path, manifest in manifests():
        if path not in patches:
            kubernetes_validate.validate(manifest, version, strict=True)


def patches_of_all() -> Iterator[tuple[Path, Manifest]]:
    """All patches and the targets that they may have: those of the overlay, or for a component those of the base."""
    for path in sorted(FOLDER.rglob("kustomization.yaml")):
        document = kustomization(path.parent)
        for patch in document.get("patches", []):
            yield path.parent / patch["path"], document


def test_every_patch_has_a_target() -> None:
    for path, document in patches_of_all():
        folder = FOLDER / "base" if document["kind"] == "Component" else path.parent
        targets = {name_of(manifest): manifest for manifest in resources(folder)}
        for patch in documents(path.read_text()):
            target = targets[name_of(patch)]
            names = {container["name"] for container in containers(target)}
            assert {container["name"] for container in containers(patch)} <= names


def containers(manifest: Manifest) -> list[Manifest]:
    return manifest["spec"]["template"]["spec"]["containers"]


def test_every_file_of_kustomize_is_there_and_used() -> None:
    used: set[Path] = set()
    for path in FOLDER.rglob("kustomization.yaml"):
        document, folder = kustomization(path.parent), path.parent
        files = itertools.chain(
            document.get("resources", []),
            (patch["path"] for patch in document.get("patches", [])),
            *(map_["files"] for map_ in document.get("configMapGenerator", [])),
        )
        used |= {path, *((folder / name).resolve() for name in files)}
    assert all(path.exists() for path in used)
    assert {path for path in FOLDER.rglob("*") if path.is_file()} <= used


def test_all_selectors_select_the_pods_of_statehold_only() -> None:
    for overlay in OVERLAYS:
        result = resources(FOLDER / overlay)
        label = {"app.kubernetes.io/name": "statehold"}
        deployment = one(result, "Deployment")
        assert deployment["spec"]["template"]["metadata"]["labels"] == label
        assert deployment["spec"]["selector"] == {"matchLabels": label}
        assert one(result, "Service")["spec"]["selector"] == label
        assert one(result, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": label}
        assert one(result, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": label}


def test_only_pods_of_statehold_and_the_scraper_reach_their_ports(base: list[Manifest]) -> None:
    policy = one(base, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    peers = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    label = {"app.kubernetes.io/name": "statehold"}
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert peers == {
        "http": None,
        "metrics": [{"namespaceSelector": monitoring}],
        "peer": [{"podSelector": {"matchLabels": label}}],
    }
    assert [port["targetPort"] for port in one(base, "Service")["spec"]["ports"]] == ["http"]


def test_the_settings_are_valid_and_fit_the_pod(settings: Manifest, container: Manifest) -> None:
    config = Config.model_validate(settings)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert config.server.port == ports["http"]
    assert config.cluster.listen == f"0.0.0.0:{ports['peer']}"
    assert config.metrics.listen == f"0.0.0.0:{ports['metrics']}"
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    arguments: list[str] = container["args"]
    paths = [arguments[arguments.index(flag) + 1] for flag in ("--config", "--data")]
    secrets = [config.server.tokens, config.store.url_file, config.cluster.keys_file]
    for path in (*paths, *secrets):
        assert path is not None
        assert any(Path(path).is_relative_to(mount) for mount in mounts)
    (generated,) = kustomization(FOLDER / "dev")["secretGenerator"]
    keys = {literal.partition("=")[0] for literal in generated["literals"]}
    assert keys == {path.name for path in secrets if path is not None}


def test_a_pod_has_the_time_to_end_its_calls_and_to_save_its_sessions(
    settings: Manifest, pod: Manifest, container: Manifest
) -> None:
    config = Config.model_validate(settings)
    (_, seconds) = container["lifecycle"]["preStop"]["exec"]["command"]
    needed = float(seconds) + config.timeouts.close_grace + DRAIN_BOUND + SPARE_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed


def test_the_pod_is_confined(pod: Manifest, container: Manifest) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_the_image_has_the_user_and_the_ports_of_the_pod(
    pod: Manifest, container: Manifest
) -> None:
    recipe = (DEPLOY / "image" / "Containerfile").read_text()
    user = pod["securityContext"]["runAsUser"]
    assert re.findall(r"^USER (\S+)", recipe, re.MULTILINE)[-1] == f"{user}:{user}"
    assert f"--uid {user} " in recipe
    ports = " ".join(str(port["containerPort"]) for port in container["ports"])
    assert f"\nEXPOSE {ports}\n" in recipe
