"""Schemas of Kubernetes' own kinds, and of others by a folder like that of CRDs-catalog."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

OLDEST, NEWEST = "1.34", "1.37"  # of Kubernetes, that the manifests are for
VARIABLE = "CRD_SCHEMAS"
MISSING = f"{VARIABLE} names no folder with the schemas of custom resources: CONTRIBUTING.md says where they come from"


class Invalid(Exception):
    """An object that the schema of its kind does not allow, or a kind without a schema."""


def check(thing: dict[str, Any], version: str = NEWEST) -> None:
    """Raises Invalid. Skips the test if the kind is not Kubernetes' own and no folder is named."""
    import jsonschema  # here, since `make test` has neither
    import kubernetes_validate
    from kubernetes_validate.utils import SchemaNotFoundError, ValidationError

    name = f"{thing['kind']}/{thing['metadata']['name']}"
    if not is_core(thing) and not os.environ.get(VARIABLE):
        pytest.skip(MISSING)
    try:
        if is_core(thing):
            kubernetes_validate.validate(thing, version, strict=True)
        else:
            schema = custom(*named(thing))
            jsonschema.Draft7Validator(schema).validate(thing)
    except (SchemaNotFoundError, FileNotFoundError) as error:
        raise Invalid(f"{name}: there is no schema of this kind") from error
    except (ValidationError, jsonschema.ValidationError) as error:
        raise Invalid(f"{name}: {error.message}") from error


def is_core(thing: dict[str, Any]) -> bool:
    """Whether the kind is Kubernetes' own, in the newest version."""
    group = thing["apiVersion"].partition("/")[0] if "/" in thing["apiVersion"] else ""
    return "." not in group or (group.endswith(".k8s.io") and group != "gateway.networking.k8s.io")


def named(thing: dict[str, Any]) -> tuple[str, str, str]:
    """The group, version and kind of an object."""
    group, _, version = thing["apiVersion"].partition("/")
    return group, version, thing["kind"]


@cache
def custom(group: str, version: str, kind: str) -> Any:
    """The schema of a custom resource. Raises FileNotFoundError if there is none."""
    file = Path(os.environ[VARIABLE]) / group / f"{kind.lower()}_{version}.json"
    return json.loads(file.read_text(encoding="utf-8"))
