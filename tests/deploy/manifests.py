"""The files in deploy/kubernetes, and what kustomize renders of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAY = FOLDER / "overlays" / "eks-trainium2"
STAGES = ("1-nodes", "2-storage", "3-compile", "4-serving", "5-bench")
PARAMETERS = dict(
    line.split("=", 1)
    for line in (OVERLAY / "parameters" / "parameters.env").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
FILES = sorted(FOLDER.rglob("*.yaml"))
APPLIED = {  # what is applied together, by name: folders with a kustomization each
    "base": [FOLDER / "base"],
    "cpu": [FOLDER / "overlays" / "cpu"],
    "cuda": [FOLDER / "overlays" / "cuda"],
    "router": [FOLDER / "overlays" / "router"],
    OVERLAY.name: [OVERLAY / stage for stage in STAGES],
}
Object = dict[str, Any]


@cache
def documents(file: Path) -> list[Object]:
    """What is in a file."""
    return [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each is not None]


def values(node: Any) -> Iterator[Object]:
    """All objects in `node`, at any depth, those in patches, too."""
    if isinstance(node, dict):
        yield node
        for name, value in node.items():
            yield from values(yaml.safe_load(value) if name == "patch" and isinstance(value, str) else value)
    elif isinstance(node, list):
        for value in node:
            yield from values(value)


@cache
def rendered(folder: Path) -> list[Object]:
    """The objects that `kubectl apply -k` would send."""
    kubectl = Path(sys.executable).with_name("kubectl")
    done = subprocess.run(
        [kubectl, "kustomize", folder],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


@cache
def applied(name: str) -> list[Object]:
    """All objects of one of `APPLIED`, each once."""
    found: list[Object] = []
    for folder in APPLIED[name]:
        found += [each for each in rendered(folder) if each not in found]
    return found


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The templates of pods, each with the name of the object that it stands in."""
    for each in objects:
        if each["kind"] in ("StatefulSet", "Deployment", "Job", "DaemonSet"):
            yield f"{each['kind']}/{each['metadata']['name']}", each["spec"]["template"]


def containers(pod: Object) -> list[Object]:
    """The containers of a template, those that run before the others, too."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
