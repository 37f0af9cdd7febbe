"""The manifests for EKS, as rendered, have every part of AWS's sample (docs/eks.md lists them): `make test-deploy`."""

import pytest

from tests.deploy.manifests import OVERLAY, PARAMETERS, Object, applied, containers

pytestmark = pytest.mark.engine("deploy")

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


def test_compile_job() -> None:
    job = container("Job", "compile")
    assert job["args"] == ["compile"] and job["resources"]["requests"]["cpu"] == "190"
    assert there("Job", "compile")["spec"]["template"]["spec"]["serviceAccountName"] == "models-write"
    assert variables("Job", "compile")["VERIFIER_COMPILE_STORE"].startswith("/models/programs/")
    assert not variables("Job", "compile")["VERIFIER_COMPILE_CACHE"].startswith("/models"), "compilers rename"


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


def test_laptops_reach_the_target_through_a_load_balancer_with_tls() -> None:
    gateway = there("Gateway", "specpair")["spec"]
    [listener] = gateway["listeners"]
    assert (listener["protocol"], listener["port"], listener["hostname"]) == ("HTTPS", 443, PARAMETERS["HOST"])
    assert listener["tls"] == {"mode": "Terminate", "certificateRefs": [{"name": "specpair-tls"}]}
    kind = gateway["infrastructure"]["annotations"]["service.beta.kubernetes.io/aws-load-balancer-type"]
    assert kind == "external", "a network load balancer, which passes TLS on"
    assert there("HTTPRoute", "verifier")["spec"]["rules"][0]["backendRefs"] == [{"name": BASE, "port": 8000}]
