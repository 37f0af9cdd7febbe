"""Whom NetworkPolicies let a pod reach, as Kubernetes reads them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.deploy.manifests import Object, pods

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
