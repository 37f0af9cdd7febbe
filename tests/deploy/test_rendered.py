"""What kustomize renders is what Kubernetes takes: `make test-deploy`."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.manifests import APPLIED, FOLDER, OVERLAY, PARAMETERS, Object, applied, containers, pods, rendered
from tests.deploy.schemas import NEWEST, OLDEST, check, is_core
from tests.paths import ROOT

pytestmark = pytest.mark.engine("deploy")

SECRETS = {
    "verifier-key",
    "drafter-key",
    "router-key",
    "specpair-tls",
}  # made by the commands of the documentation, never by a file
every_root = pytest.mark.parametrize("root", APPLIED)


def of_kind(root: str, *kinds: str) -> list[Object]:
    return [each for each in applied(root) if each["kind"] in kinds]


def of_name(root: str, kind: str, name: str) -> list[Object]:
    return [each for each in of_kind(root, kind) if each["metadata"]["name"] == name]


def names(root: str, *kinds: str) -> set[str]:
    return {each["metadata"]["name"] for each in of_kind(root, *kinds)}


@every_root
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kinds_of_kubernetes_are_valid(root: str, version: str) -> None:
    found = [each for each in applied(root) if is_core(each)]
    assert len(found) >= 8
    for each in found:
        check(each, version)


@every_root
def test_custom_kinds_are_valid(root: str) -> None:
    for each in applied(root):
        if not is_core(each):
            check(each)


@every_root
def test_pods_have_no_rights(root: str) -> None:
    for name, pod in pods(applied(root)):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 10001, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        for container in containers(pod):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] and own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert {"requests", "limits"} <= container["resources"].keys(), name
            mounted = {each["mountPath"] for each in container["volumeMounts"]}
            assert {"/tmp", "/var/cache/specpair"} <= mounted, "the folders that the image writes to"


@every_root
def test_what_pods_name_is_there(root: str) -> None:
    claims = {
        template["metadata"]["name"]
        for each in of_kind(root, "StatefulSet")
        for template in each["spec"].get("volumeClaimTemplates", [])
    }
    for name, pod in pods(applied(root)):
        spec = pod["spec"]
        assert spec["serviceAccountName"] in names(root, "ServiceAccount"), name
        volumes = {each["name"]: each for each in spec["volumes"]}
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in names(root, "PersistentVolumeClaim"), name
            if "configMap" in volume:
                assert volume["configMap"]["name"] in names(root, "ConfigMap"), name
        for claim in spec.get("resourceClaims", []):
            assert claim["resourceClaimTemplateName"] in names(root, "ResourceClaimTemplate"), name
        for container in containers(pod):
            assert {each["name"] for each in container["volumeMounts"]} <= volumes.keys() | claims, name
            given = {claim["name"] for claim in container["resources"].get("claims", [])}
            assert given <= {claim["name"] for claim in spec.get("resourceClaims", [])}, name
            for source in container.get("envFrom", []):
                assert source["configMapRef"]["name"] in names(root, "ConfigMap"), name
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {})
                if "secretKeyRef" in source:
                    assert source["secretKeyRef"]["name"] in SECRETS, name
                if "configMapKeyRef" in source:
                    reference = source["configMapKeyRef"]
                    [settings] = of_name(root, "ConfigMap", reference["name"])
                    assert reference["key"] in settings["data"], name


@every_root
def test_services_budgets_and_policies_select_pods(root: str) -> None:
    labels = [pod["metadata"]["labels"] for _, pod in pods(applied(root))]
    for each in of_kind(root, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = each["spec"]
        wanted = spec.get("selector", spec.get("podSelector"))
        wanted = wanted.get("matchLabels", wanted)
        assert wanted and any(wanted.items() <= found.items() for found in labels), each["metadata"]["name"]


@every_root
def test_policies_let_through_whom_they_should(root: str) -> None:
    check_policies(applied(root))


def check_policies(objects: list[Object]) -> None:
    """That clients, the gateway, Prometheus, the router and drafters reach what they ask, and nobody else does."""
    found = places(objects)
    verifiers = [place for name, place in found.items() if name.startswith("StatefulSet/")]
    client = Place({"specpair/verifier-client": "true"})
    admitted = [client, Place({}, {}, "envoy-gateway-system"), Place({}, {}, "monitoring")]
    admitted += [place for place in found.values() if client.labels.items() <= place.labels.items()]
    for verifier in verifiers:
        assert all(reaches(objects, each, verifier) for each in admitted)
        for asked in (verifier, *(place for name, place in found.items() if name.startswith("Deployment/"))):
            for stranger in (Place({}), Place(client.labels, {}, "default"), Place(DNS.labels)):
                assert not reaches(objects, stranger, asked)
        if (router := found.get("Deployment/router")) is not None:
            assert reaches(objects, verifier, router), "to register"
            assert all(reaches(objects, each, router) for each in admitted if each is not router)
    if "Deployment/drafter" in found:
        assert reaches(objects, Place({"specpair/drafter-client": "true"}), found["Deployment/drafter"])
        assert not reaches(objects, client, found["Deployment/drafter"])
    assert verifiers
    assert {name for name, place in found.items() if not reaches(objects, place, DNS)} <= {"Job/compile"}


@every_root
def test_routes_and_scaling_lead_somewhere(root: str) -> None:
    for route in of_kind(root, "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            assert {each["name"] for each in rule["backendRefs"]} <= names(root, "Service")
        assert {each["name"] for each in route["spec"]["parentRefs"]} <= names(root, "Gateway")
    for policy in of_kind(root, "BackendTrafficPolicy"):
        assert {each["name"] for each in policy["spec"]["targetRefs"]} <= names(root, "HTTPRoute")
    for scaled in of_kind(root, "ScaledObject"):
        target = scaled["spec"]["scaleTargetRef"]
        [found] = of_name(root, target["kind"], target["name"])
        assert "replicas" not in found["spec"], "it would be set anew by each apply"


def of_your_own(folder: Path, kustomization: str) -> list[Object]:
    """What an overlay makes that somebody wrote beside ours. `../..` in it is deploy/kubernetes."""
    beside = os.path.relpath(FOLDER, folder)  # kustomize takes no absolute paths
    (folder / "kustomization.yaml").write_text(kustomization.replace("../..", beside), encoding="utf-8")
    return rendered(folder)


@pytest.mark.parametrize("component", sorted(path.name for path in (FOLDER / "components").iterdir()))
def test_each_component_fits_the_base(component: str, tmp_path: Path) -> None:
    objects = of_your_own(tmp_path, f"resources: [../../base]\ncomponents: [../../components/{component}]\n")
    assert objects != applied("base")
    for each in objects:
        check(each)


@pytest.mark.parametrize("overlay", ["base", "overlays/cpu", "overlays/cuda", f"overlays/{OVERLAY.name}/4-serving"])
def test_router_and_drafter_fit_each_overlay(overlay: str, tmp_path: Path) -> None:
    both = "components: [../../components/router, ../../components/drafter]\n"
    objects = of_your_own(tmp_path, f"resources: [../../{overlay}]\n{both}")
    for each in objects:
        check(each)
    check_policies(objects)
    [router] = [each["spec"]["ports"] for each in objects if each["kind"] == "Service" and named(each) == "router"]
    for name, pod in pods(objects):
        if name.startswith("StatefulSet/"):
            [container] = containers(pod)
            variables = {each["name"]: each.get("value") for each in container["env"]}
            assert variables["VERIFIER_ROUTER"] == f"http://router:{router[0]['port']}"
            assert variables["VERIFIER_ADVERTISE"] == f"http://$(POD_IP):{container['ports'][0]['containerPort']}"
            assert list(variables).index("POD_IP") < list(variables).index("VERIFIER_ADVERTISE"), (
                "else it stays as it is"
            )
    for route in (each for each in objects if each["kind"] == "HTTPRoute"):
        assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "router", "port": router[0]["port"]}]


def named(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def test_overlay_of_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    objects = of_your_own(tmp_path, example.replace("sha256:…", f"sha256:{'0' * 64}"))
    for each in objects:
        check(each)
    [(_, pod)] = pods(objects)
    assert pod["spec"]["containers"][0]["image"] == f"registry.example.com/specpair-verifier@sha256:{'0' * 64}"
    [settings] = [each for each in objects if each["kind"] == "ConfigMap"]
    assert settings["data"]["VERIFIER_SLOTS"] == "8" and settings["data"]["VERIFIER_LOG_FORMAT"] == "json"


def test_parameters_are_everywhere() -> None:
    """No placeholder is left where a parameter belongs."""
    objects = [each for each in applied(OVERLAY.name) if each["kind"] != "ConfigMap"]
    text = json.dumps(objects)
    values = re.sub(r'"(name|key)": "\w+"', "", text)  # but for names of variables and parameters
    for placeholder in ("registry.invalid", "REGION", "CLUSTER", "BUCKET", "ACCOUNT"):
        assert placeholder not in values, placeholder
    given = PARAMETERS
    for name in ("ACCOUNT", "REGION", "BUCKET", "REGISTRY", "HOST", "AMI"):
        assert given[name] in text, name
    images = {container["image"] for _, pod in pods(objects) for container in containers(pod)}
    assert images == {f"{given['REGISTRY']}/specpair-{name}" for name in ("verifier:neuron", "drafter")}


@every_root
def test_no_key_is_in_a_file(root: str) -> None:
    assert of_kind(root, "Secret") == []


OURS = "specpair"  # the namespace of all policies here
_NAME = "kubernetes.io/metadata.name"  # the label that each namespace has


class Place(NamedTuple):
    """A pod. `ports`: those that it listens to, by name."""

    labels: Mapping[str, str]
    ports: Mapping[str, int] = {}
    namespace: str = OURS


DNS = Place({"k8s-app": "kube-dns"}, {"dns": 53}, "kube-system")


def places(objects: list[Object]) -> dict[str, Place]:
    """The pods of our namespace, by the kind and name of what makes them."""
    return {
        name: Place(
            pod["metadata"]["labels"],
            {
                port["name"]: port["containerPort"]
                for each in pod["spec"]["containers"]
                for port in each.get("ports", [])
            },
        )
        for name, pod in pods(objects)
    }


def reaches(objects: list[Object], source: Place, target: Place) -> bool:
    """Whether one pod may open a connection to each port of another."""
    policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    return all(
        _lets(policies, "Egress", source, target, port) and _lets(policies, "Ingress", target, source, port)
        for port in target.ports.items()
    )


def _lets(policies: list[Any], direction: str, own: Place, other: Place, port: tuple[str, int]) -> bool:
    """Whether the policies of a pod let it reach, or be reached by, another one. All is open to a pod without one."""
    held = [
        policy
        for policy in policies
        if own.namespace == OURS and _selects(policy["podSelector"], own.labels) and direction in policy["policyTypes"]
    ]
    peers = "to" if direction == "Egress" else "from"
    return not held or any(
        any(each["port"] in port for each in rule["ports"]) and any(_fits(peer, other) for peer in rule[peers])
        for policy in held
        for rule in policy.get(direction.lower(), [])
    )


def _fits(peer: Object, other: Place) -> bool:
    if "ipBlock" in peer:  # these leave out the networks that pods are in
        return False
    there = peer.get("namespaceSelector", {"matchLabels": {_NAME: OURS}})
    return _selects(there, {_NAME: other.namespace}) and _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()
