"""What the manifests name exists in the code: settings, paths, metrics, the header of sessions."""

import json
import re

import pytest
import yaml

from drafter_client.cli.commands import serve_parser
from drafter_client.cli.flags import parsed
from gateway.router.settings import from_flags as router_settings
from scripts import kubernetes_alerts
from specpair.http_service.web_pages import EXPOSED
from tests.deploy.dockerfile import stages
from tests.deploy.manifests import FILES, FOLDER, OVERLAY, PARAMETERS, Object, applied, containers, documents, values
from tests.paths import ROOT
from tests.settings_names import SETTINGS, is_setting
from verifier_server import options as verifier
from verifier_server.api.operations import OPERATIONS
from verifier_server.flags import flags_parser
from verifier_server.settings import read_flags

PATHS = {operation.path for operation in OPERATIONS}
CONTAINERS = [each for file in FILES for document in documents(file) for each in values(document) if "image" in each]
ENDS_AFTER = 10  # seconds that a supervisor waits longer than the verifier drains: docs/service.md


def test_variables_are_settings() -> None:
    named = {
        name
        for file in [*FILES, *FOLDER.rglob("*.env")]
        for name in re.findall(rf"\b(?:{'|'.join(SETTINGS)})[A-Z_]+\b", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert {name for name in named if not is_setting(name)} == set()


def test_settings_are_accepted() -> None:
    """By the settings' own checks, but for models that are fetched first."""
    found = 0
    for node in (each for file in FILES for document in documents(file) for each in values(document)):
        given = dict(literal.split("=", 1) for literal in node.get("literals", []))
        if node.get("kind") == "ConfigMap":  # in a patch
            given |= node.get("data", {})
        if given:
            read_flags(flags_parser(verifier.OPTIONS), [], given)
            parsed(serve_parser(), [], given)
            router_settings([], {"ROUTER_REGISTER_KEY": "key", **given})
            found += 1
    assert found >= 6


@pytest.mark.parametrize("drafts", [False, True])
def test_settings_of_the_overlay_for_eks_are_accepted(drafts: bool) -> None:
    """Those of both verifiers and of the compile job, with the parameters that ship."""
    given = PARAMETERS
    variables = {}
    for component in [OVERLAY / "trainium", *([OVERLAY / "4-serving" / "speculative"] if drafts else [])]:
        for document in documents(component / "kustomization.yaml"):
            for each in values(document):
                if "configMapKeyRef" in (source := each.get("valueFrom", {})):
                    variables[each["name"]] = given[source["configMapKeyRef"]["key"]]
                elif str(each.get("name", "")).startswith("VERIFIER_"):
                    variables[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], each["value"])
    environment = {name: value for name, value in variables.items() if name.startswith("VERIFIER_")}
    assert len(environment) >= 10
    settings, *_ = read_flags(flags_parser(verifier.OPTIONS), [], environment)
    assert settings.drafts is drafts and settings.max_drafts == int(given["DRAFT_TOKENS"])


def test_half_a_machine_has_the_cores_that_share_a_target() -> None:
    devices = {}
    for claim in documents(OVERLAY / "1-nodes" / "claims.yaml"):
        wanted = claim["spec"]["spec"]["devices"]
        [request], [config] = wanted["requests"], wanted["config"]
        assert config["opaque"]["parameters"]["logicalNeuronCore"] == 2, "of eight physical cores of a device"
        devices[claim["metadata"]["name"]] = request["exactly"]["count"]
    assert devices == {"half-trn2": 8, "whole-trn2": 16}
    cores, widths = int(PARAMETERS["TENSOR_PARALLEL"]), PARAMETERS["COMPILE_WIDTHS"].split(",")
    assert cores == 4 * devices["half-trn2"] and PARAMETERS["TARGET"].endswith(f"-{cores}-heads")
    assert str(int(PARAMETERS["DRAFT_TOKENS"]) + 1) in widths, "a whole draft is judged in a pass that is compiled"


def test_accounts_may_no_more_than_they_use() -> None:
    found = {file.stem: json.loads(file.read_text())["Statement"] for file in (OVERLAY / "policies").iterdir()}
    assert found.keys() == {"models-read", "models-write", "bench"}
    writes = {
        name: each["Resource"] for name, policy in found.items() for each in policy if "s3:PutObject" in each["Action"]
    }
    assert writes == {"models-write": "arn:aws:s3:::BUCKET/programs/*", "bench": "arn:aws:s3:::BUCKET/bench/*"}
    assert "*" not in "".join(action for policy in found.values() for each in policy for action in each["Action"])


def test_paths_that_are_asked_exist() -> None:
    asked = {
        each["path"]
        for file in FILES
        for document in documents(file)
        for each in values(document)
        if str(each.get("path", "")).startswith("/") and "op" not in each
    }
    assert {"/live", "/ready", "/health", "/metrics"} <= asked <= PATHS


def test_sessions_are_spread_by_the_header_that_drafters_send() -> None:
    [policy] = documents(FOLDER / "components" / "gateway" / "policy.yaml")
    [header] = policy["spec"]["loadBalancer"]["consistentHash"]["headers"]
    assert header["name"] in EXPOSED


def test_health_of_the_gateway_is_not_load() -> None:
    """/ready is 503 while a verifier is overloaded; its sessions must not move for that."""
    [policy] = documents(FOLDER / "components" / "gateway" / "policy.yaml")
    assert policy["spec"]["healthCheck"]["active"]["http"]["path"] == "/health"


def test_pods_may_drain_before_they_are_killed() -> None:
    everything = [each for file in FILES for document in documents(file) for each in values(document)]
    draining = [each for each in everything if "terminationGracePeriodSeconds" in each and "containers" in each]
    assert len(draining) == 3
    for pod in draining:
        [container] = pod["containers"]  # jobs have none: they need not drain
        waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pod["terminationGracePeriodSeconds"] >= waits + drain_seconds() + ENDS_AFTER


def drain_seconds() -> float:
    """The longest drain that the manifests ask for."""
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    given = re.findall(r"(?:VERIFIER_DRAIN_SECONDS|(?:DRAFTER|ROUTER)_DRAIN)=(\d+)", text)
    return max(map(float, given))


def test_alerts_are_those_of_the_documentation() -> None:
    made = kubernetes_alerts.rule(kubernetes_alerts.ALERTS.read_text(encoding="utf-8"))
    assert kubernetes_alerts.RULE.read_text(encoding="utf-8") == made, "run: python -m scripts.kubernetes_alerts"
    alerts = yaml.safe_load(kubernetes_alerts.ALERTS.read_text(encoding="utf-8"))
    assert yaml.safe_load(made)["spec"] == alerts


def test_job_of_the_scrapes_is_the_one_that_alerts_ask_for() -> None:
    [monitor] = documents(FOLDER / "components" / "monitoring" / "servicemonitor.yaml")
    label = monitor["spec"]["jobLabel"]
    alerts = (ROOT / "docs" / "monitoring" / "alerts.yml").read_text(encoding="utf-8")
    [job] = set(re.findall(r'job="(\w+)"', alerts))
    assert monitor["spec"]["selector"]["matchLabels"][label] == job


def test_ports_are_those_of_the_images() -> None:
    checked = set()
    for container in CONTAINERS:
        for port in container.get("ports", []):
            name = container["image"].rpartition("/")[2].removeprefix("specpair-")
            assert [str(port["containerPort"])] == stages()[name].of("EXPOSE")
            checked.add(name)
    assert checked == {"verifier", "drafter", "router"}


of_eks = pytest.mark.engine("deploy")  # these render the overlay: `make test-deploy`

BASE, SPECULATIVE = "verifier-base", "verifier-speculative"


def there(kind: str, name: str) -> Object:
    [found] = [each for each in applied(OVERLAY.name) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def container(kind: str, name: str) -> Object:
    return containers(there(kind, name)["spec"]["template"])[0]


def variables(kind: str, name: str) -> dict[str, str]:
    """The variables of a container, with the parameters that they name."""
    found = {}
    for each in container(kind, name)["env"]:
        source = each.get("valueFrom", {}).get("configMapKeyRef")
        found[each["name"]] = each.get("value", "") if source is None else PARAMETERS[source["key"]]
    return {
        key: text.replace("$(TARGET)", PARAMETERS["TARGET"]).replace("$(DRAFT)", PARAMETERS["DRAFT"])
        for key, text in found.items()
    }


@of_eks
def test_bucket() -> None:
    volume, claim = (
        there("PersistentVolume", "specpair-models")["spec"],
        there("PersistentVolumeClaim", "models")["spec"],
    )
    assert (
        volume["csi"]["driver"] == "s3.csi.aws.com"
        and volume["csi"]["volumeAttributes"]["bucketName"] == PARAMETERS["BUCKET"]
    )
    assert claim["volumeName"] == "specpair-models" and "allow-overwrite" not in volume["mountOptions"]
    for name in ("models-read", "models-write", "bench"):
        role = there("ServiceAccount", name)["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        assert role == f"arn:aws:iam::{PARAMETERS['ACCOUNT']}:role/specpair-{name}"


@of_eks
def test_compile_job() -> None:
    job = container("Job", "compile")
    assert job["args"] == ["compile"] and job["resources"]["requests"]["cpu"] == "190"
    assert there("Job", "compile")["spec"]["template"]["spec"]["serviceAccountName"] == "models-write"
    assert variables("Job", "compile")["VERIFIER_COMPILE_STORE"].startswith("/models/programs/")
    assert not variables("Job", "compile")["VERIFIER_COMPILE_CACHE"].startswith("/models"), "compilers rename"


@of_eks
def test_both_verifiers_take_what_was_compiled() -> None:
    """With the same settings, but for the draft model: programs are compiled for these."""
    compiled, base = variables("Job", "compile"), variables("StatefulSet", BASE)
    speculative = variables("StatefulSet", SPECULATIVE)
    assert (
        compiled["VERIFIER_DRAFT_MODEL"] == speculative.pop("VERIFIER_DRAFT_MODEL") == f"/models/{PARAMETERS['DRAFT']}"
    )
    assert speculative == base and base["VERIFIER_MODEL"] == f"/models/{PARAMETERS['TARGET']}"
    names = [name for name in base if name.startswith("VERIFIER_") and name != "VERIFIER_API_KEY"]
    assert {name: base[name] for name in names} == {name: compiled[name] for name in names}
    of_the_sample = {"TENSOR_PARALLEL": "32", "SLOTS": "4", "CONTEXT": "1024"}
    assert {name: base[f"VERIFIER_{name}"] for name in of_the_sample} == of_the_sample
    for name in (BASE, SPECULATIVE):
        claims = there("StatefulSet", name)["spec"]["template"]["spec"]["resourceClaims"]
        assert [each["resourceClaimTemplateName"] for each in claims] == ["half-trn2"]
        assert there("Service", name)["spec"]["selector"]["specpair/variant"] == name.removeprefix("verifier-")


@of_eks
def test_laptops_reach_the_target_through_a_load_balancer_with_tls() -> None:
    gateway = there("Gateway", "specpair")["spec"]
    [listener] = gateway["listeners"]
    assert (listener["protocol"], listener["port"], listener["hostname"]) == ("HTTPS", 443, PARAMETERS["HOST"])
    assert listener["tls"] == {"mode": "Terminate", "certificateRefs": [{"name": "specpair-tls"}]}
    kind = gateway["infrastructure"]["annotations"]["service.beta.kubernetes.io/aws-load-balancer-type"]
    assert kind == "external", "a network load balancer, which passes TLS on"
    assert there("HTTPRoute", "verifier")["spec"]["rules"][0]["backendRefs"] == [{"name": BASE, "port": 8000}]
