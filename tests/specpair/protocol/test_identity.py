"""A verifier's identity changes with all that a drafter keeps of it, and with no more."""

from dataclasses import replace
from typing import Any

import pytest

from specpair.protocol.service_responses import ModelInfo, continues, identity_of
from specpair.speculation.sampling import row_changes
from tests.drafter_client.http.bodies import model_info

MODEL, VOCABULARY = "honest", model_info().vocabulary
OTHERS: dict[str, Any] = {  # for each field of `ModelInfo`, another value
    "name": "alias",
    "engine": "torch",
    "context_length": 512,
    "rows": 2,
    "max_drafts": 4,
    "trees": True,
    "max_tree_leaves": 4,
    "max_tree_nodes": 16,
    "strategies": ["coupled"],
    "refused": {"logprobs": "the engine gives none"},
    "self_continue": False,
    "modes": ["target", "fused"],
    "predictions": False,
    "draft_model": "small",
    "threads": 3,
    "noise": "gumbel-2",
    "vocabulary": replace(VOCABULARY, ordinary="other"),
    "chat_template": "{{ messages }}",
}
OWN: dict[str, Any] = {
    "wide_pass_ms": [(32, 9.0)],
    "pass_ms": [9.0],
    "draft_pass_ms": 0.3,
    "kv_bytes": 7,
    "machine": "another",
}
BEGAN = identity_of(model_info(), MODEL)


def test_each_field_is_of_the_identity_or_of_one_replica() -> None:
    assert OTHERS.keys() | OWN.keys() | {"identity"} == ModelInfo.model_fields.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_drafter_keeps_changes_the_identity(name: str) -> None:
    other = identity_of(model_info(**{name: OTHERS[name]}), MODEL)
    assert other != BEGAN
    assert continues(BEGAN, other) == (name not in ("name", "noise", "vocabulary")), "else it is another text"


@pytest.mark.parametrize("name", OWN)
def test_what_each_start_measures_and_the_machine_do_not(name: str) -> None:
    assert identity_of(model_info(**{name: OWN[name]}), MODEL) == BEGAN


def test_another_model_behind_an_alias_and_other_processors_are_another_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not continues(BEGAN, identity_of(model_info(), "another model of that alias"))
    monkeypatch.setattr(row_changes, "NAME", "processors-2")
    assert not continues(BEGAN, identity_of(model_info(), MODEL))
