"""Messages keep their value through JSON; an identity changes with what a drafter keeps; terminals get safe text."""

import json
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from specpair.protocol import messages, response_fields, responses, service_responses
from specpair.protocol.errors import InvalidRequest
from specpair.protocol.service_responses import ModelInfo, continues, identity_of
from specpair.protocol.terminal_text import one_line, several_lines
from specpair.speculation.acceptance.token_sources import TokenMark, marks_of, split
from specpair.speculation.sampling import row_changes
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.drafter_client.http.fake_transports import model_info
from tests.specpair.protocol.drawn import REQUESTS, RESPONSES


@pytest.mark.parametrize("name", RESPONSES)
@given(data=st.data())
def test_a_response_keeps_its_value(name: str, data: st.DataObject) -> None:
    sent = data.draw(RESPONSES[name])
    body = sent.body()
    assert type(sent).model_validate_json(body, extra="forbid", by_alias=True, by_name=False) == sent
    keys = [field.alias or name for name, field in type(sent).model_fields.items()]
    assert list(json.loads(body)) == [key for key in keys if key in json.loads(body)]


@pytest.mark.parametrize("name", REQUESTS)
@given(data=st.data())
def test_a_request_keeps_its_value(name: str, data: st.DataObject) -> None:
    sent = data.draw(REQUESTS[name])
    assert messages.parse(type(sent), sent.body()) == sent


def test_a_request_is_built_as_the_verifier_reads_it() -> None:
    given = {"prompt": "a", "strategy": "deterministic", "seed": 1}
    assert json.loads(messages.build(messages.PrefillRequest, given).body()) == given
    with pytest.raises(InvalidRequest, match=r"^top_k: Input should be a valid integer$"):
        messages.build(messages.PrefillRequest, {"prompt": "a", "top_k": 1.5})


def verified(marks: list[TokenMark], judged: int, forward_ms: float) -> responses.VerifyResponse:
    return responses.VerifyResponse(
        position=10,
        accepted=0,
        judged=judged,
        tokens=[7] * len(marks),
        preds=[7] * len(marks),
        sources=marks,
        total_tokens=10 + len(marks),
        finish_reason=None,
        timing=response_fields.Timing(queue_ms=0.5, forward_ms=forward_ms, sessions=1),
    )


@given(st.integers(0, 5), st.integers(1, 5), st.data())
def test_response_tells_recorded_tokens_from_judged_ones(recorded: int, judged: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, judged))
    earlier = data.draw(st.sampled_from(["t" * recorded, "b" * recorded, ("a" * recorded)[1:] + "b" * (recorded > 0)]))
    own = marks_of([True] * accepted + [False], judged)
    response = verified([*split(earlier), *own], judged, 1.5)
    assert response.ran and response.round == (recorded, accepted, judged)


@given(st.integers(1, 5))
def test_response_without_judged_drafts_has_at_most_one_new_token(tokens: int) -> None:
    from_record, decoded = verified(split("b") * tokens, 0, 0.0), verified(split("b") * tokens, 0, 1.5)
    assert (from_record.ran, from_record.round) == (False, None)
    assert (decoded.ran, decoded.round) == (True, (tokens - 1, 0, 0))


def test_names_are_made_safe_for_a_terminal() -> None:
    """On both ends."""
    report = response_fields.SamplingReport.of(TextSpec(seed=0))
    told = json.dumps({**report.settings(), "noise": "a\x1b[2J\u202e"})
    assert response_fields.SamplingReport.model_validate_json(told).noise == r"a\x1b[2J\u202e"


def test_the_report_has_the_processors_that_are_on() -> None:
    plain = response_fields.SamplingReport.of(TextSpec(seed=5, temperature=0.5)).settings()
    sampling = Sampling(5, 0.5, min_p=0.1, logit_bias={3: 2.0, 15: -100.0})
    report = response_fields.SamplingReport.of(TextSpec.of(sampling))
    assert report.settings() == plain | {"min_p": 0.1, "logit_bias": {"3": 2.0, "15": -100.0}}
    penalties = Sampling(5, 0.5, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1)
    report = response_fields.SamplingReport.of(TextSpec.of(penalties))
    names = ("presence_penalty", "frequency_penalty", "repetition_penalty")
    assert report.settings() == plain | dict(zip(names, (0.5, -0.5, 1.1), strict=True))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (responses.PrefillResponse, "prompt_ids"),
        (responses.VerifyResponse, "tokens"),
        (responses.VerifyResponse, "preds"),
        (responses.VerifyResponse, "decisions"),
        (responses.VerifyResponse, "logprobs"),
        (service_responses.ModelInfo, "pass_ms"),
        (service_responses.ModelInfo, "strategies"),
        (service_responses.ModelInfo, "modes"),
        (service_responses.VocabularyResponse, "pieces"),
        (messages.VerifyRequest, "draft_tokens"),
        (messages.VerifyRequest, "draft_probs"),
    ],
)
def test_only_the_first_fault_of_a_long_list_is_named(model: type[BaseModel], name: str) -> None:
    """Naming all of a million would take seconds."""
    with pytest.raises(ValidationError) as refused:
        model.model_validate_json(json.dumps({name: [[]] * 3_000}))
    assert sum(fault["loc"][0] == name for fault in refused.value.errors()) == 1


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
    "prefixes": True,
    "draft_model": "small",
    "head": "EAGLE-3 head",
    "head_depth": 3,
    "threads": 3,
    "noise": "gumbel-2",
    "vocabulary": replace(VOCABULARY, ordinary="other"),
    "chat_template": "{{ messages }}",
}
OWN: dict[str, Any] = {
    "wide_pass_ms": [(32, 9.0)],
    "pass_ms": [9.0],
    "draft_pass_ms": 0.3,
    "head_pass_ms": 0.2,
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


TEXTS = st.text(st.characters(codec=None, categories=["Cc", "Cf", "Cs", "L", "P", "Z", "So"]))


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;pwned\x07", r"\x1b]0;pwned\x07"),
        ("\x9b31mred", r"\x9b31mred"),  # CSI as one character
        ("a\rb\x08c\x7f", r"a\rb\x08c\x7f"),
        ("abc\u202etxt.exe", r"abc\u202etxt.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("a\u2028b", r"a\u2028b"),
        ("half \ud800", r"half \ud800"),
        ("\x00", r"\x00"),
    ],
)
def test_control_characters_are_escaped(hostile: str, shown: str) -> None:
    assert one_line(hostile) == shown
    assert several_lines(hostile) == shown


def test_ordinary_text_is_unchanged() -> None:
    text = "naïve Ω 中文 ｜▁ 👩\u200d💻 می\u200cرود שלום\u200f 10\u00a0km"
    assert several_lines(text) == text
    assert one_line("Qwen2.5-0.5B ｜▁ é") == "Qwen2.5-0.5B ｜▁ é"


@given(TEXTS)
def test_output_has_no_control_characters(text: str) -> None:
    assert one_line(text).isprintable()
    assert not [
        character
        for character in several_lines(text)
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
    ]
