"""A text that keeps to a grammar is the target's in every mode, whatever drafts, and drafts keep to the grammar."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from drafter_client import Custom, Drafter, DraftModel, Expansion, Lookup, Mode, Options, Pair, Proposal, Source
from drafter_client.errors import BadOption
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, running
from verifier_server.settings import Settings

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a_long_name": {"type": "string", "maxLength": 12},
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
    },
    "required": ["a_long_name", "numbers"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, dict[str, Any]] = {
    "schema": {"json_schema": SCHEMA},
    "regex": {"regex": "(ab|ba){3,20}c"},
    "choice": {"choice": ["a long answer", "a longer answer"]},
    "lark": {"grammar": 'start: "<" /[a-z]{1,9}/ ">" start? "</>"'},
}


class Junk:
    """Drafts that mostly break the grammar."""

    width = 1

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([Proposal((7 * (len(text) + len(tail)) + 97) % 256, 0.9) for tail in tails], len(tails))


def junk(_vocabulary: Vocabulary, _sampling: Sampling) -> Drafter:
    return Junk()


SOURCES: dict[str, Source] = {"draft model": DraftModel("1", "scripted"), "lookup": Lookup(), "junk": Custom(junk)}


@pytest.fixture(scope="module")
def fused() -> Iterator[Verifier]:
    with running(Settings(backend="scripted", draft_backend="scripted", draft_model="1", model="1")) as verifier:
        yield verifier


def options(grammar: dict[str, Any], temperature: float = 1.0, **more: Any) -> Options:
    return Options(max_tokens=200, seed=5, temperature=temperature, **grammar, **more)


@pytest.mark.parametrize(
    ("kind", "temperature"), [("schema", 0.0), ("schema", 1.0), ("regex", 1.0), ("choice", 0.0), ("lark", 1.0)]
)
def test_the_text_is_the_same_in_every_mode(fused: Verifier, kind: str, temperature: float) -> None:
    grammar = GRAMMARS[kind]
    with Pair(fused.url, SOURCES["draft model"]) as pair:
        done = pair.generate("prompt", options(grammar, temperature, mode=Mode.TARGET)).read()
        assert done.stats.finish_reason == "stop" and done.stats.sources[TokenSource.FORCED] > 0
        if "json_schema" in grammar:
            assert set(json.loads(done.text)) == {"a_long_name", "numbers"}
        ways: list[dict[str, Any]] = [{"mode": Mode.FUSED}, {"mode": Mode.FUSED, "draft_n": 4}]
        for how in ways:
            assert pair.generate("prompt", options(grammar, temperature, **how)).read().token_ids == done.token_ids
    for source in SOURCES.values():
        with Pair(fused.url, source) as pair:
            ways = [{}, {"lockstep": True}, {"draft_n": 3}, {"draft_n": 0}, {"explain": True}]
            for how in ways:
                again = pair.generate("prompt", options(grammar, temperature, mode=Mode.REMOTE, **how)).read()
                assert again.token_ids == done.token_ids


@pytest.mark.parametrize("mode", [Mode.TARGET, Mode.REMOTE, Mode.FUSED])
def test_a_grammar_may_begin_behind_a_token(fused: Verifier, mode: Mode) -> None:
    with Pair(fused.url, SOURCES["draft model"]) as pair:
        how = options({"regex": "[0-9]{4}"}, mode=mode, lockstep=mode is Mode.REMOTE, grammar_after="e")
        text = pair.generate("prompt", how).read().text
    assert re.search(r"^[^e]*e[0-9]{4}$", text, re.DOTALL) or "e" not in text


def test_a_grammar_that_is_wrong_is_refused_by_name(fused: Verifier) -> None:
    with Pair(fused.url, SOURCES["draft model"]) as pair:
        for mode in (Mode.REMOTE, Mode.FUSED, Mode.TARGET):
            with pytest.raises(InvalidRequest, match=r"^json_schema.items.not: "):
                pair.generate("prompt", Options(json_schema={"items": {"not": {}}}, mode=mode)).read()
        assert pair.generate("prompt", options(GRAMMARS["choice"])).read().text.endswith("answer")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"json_schema": [1]}, "json_schema must be an object of JSON"),
        ({"json_schema": {"a": float("nan")}}, "json_schema is not JSON"),
        ({"json_schema": {"enum": ["x" * 300_000]}}, "at most 262144"),
        ({"choice": "abc"}, "choice must be texts"),
        ({"choice": ["a", ""]}, "choice holds an empty text"),
        ({"regex": "a", "grammar": "start: /a/"}, "grammar: give either regex or grammar"),
    ],
)
def test_a_program_is_told_what_is_wrong(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        Options(**given)
