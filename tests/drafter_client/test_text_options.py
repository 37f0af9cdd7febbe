"""Stop strings, grammars, logit processors, limits of a key: the text is the target's, whatever drafts."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from drafter_client import (
    Custom,
    Drafter,
    DraftModel,
    Expansion,
    Finished,
    Lookup,
    Mode,
    Options,
    Pair,
    Proposal,
    Source,
    Tokens,
)
from drafter_client.errors import BadOption
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.vocabulary import Vocabulary
from specpair.http_service.keys import key_file
from specpair.http_service.keys.gate import Account
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.protocol.errors import InvalidRequest, RateLimited
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.sampling.distribution import TokenLogprobs, token_logprobs
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, plain, running, serving
from tests.specpair.speculation import processed
from verifier_server.settings import Settings

PROMPT = "def f(x):"
DRAFT_MODEL = DraftModel(Path("1"), "scripted")


@pytest.fixture(scope="module")
def fused() -> Iterator[Verifier]:
    settings = Settings(backend="scripted", draft_backend="scripted", draft_model="1", model="1")
    with running(settings) as verifier:
        yield verifier


def _text_ids(count: int) -> list[int]:
    backend = ScriptedBackend(Script(seed=1))
    return plain(backend, backend.vocabulary.encode(PROMPT), count)


def _stop() -> tuple[str, int, int]:
    """A stop string, the characters before it, and the number of tokens to its end: a character of one token, in the
    middle of the text, that the text does not have before."""
    ids = _text_ids(40)
    at = next(at for at in range(15, 40) if ids[at] < 128 and ids[at] not in ids[:at])
    return chr(ids[at]), len(bytes(ids[:at]).decode(errors="replace")), at + 1


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_the_text_ends_before_the_stop_string_in_every_mode(fused: Verifier, mode: Mode, lockstep: bool) -> None:
    stop, length, count = _stop()
    options = Options(max_tokens=60, stop=stop, mode=mode, lockstep=lockstep)
    with Pair(fused.url, DRAFT_MODEL) as pair:
        generation = pair.generate(PROMPT, options)
        *events, last = generation
        assert pair.generate(PROMPT, Options(max_tokens=30)).read().token_ids == _text_ids(30), "the pair goes on"
    assert isinstance(last, Finished) and last.token_ids == _text_ids(count) and last.finish_reason == "stop"
    assert last.text == generation.text == bytes(_text_ids(count)).decode(errors="replace")[:length]
    assert "".join(event.text for event in events if isinstance(event, Tokens)) == last.text
    stats = last.stats
    assert (stats.ended_by, stats.token_ids, stats.finish_reason) == ("stop_string", last.token_ids, "stop")
    assert sum(stats.sources.values()) == stats.generated_tokens == count and min(stats.sources.values()) >= 0
    assert fused.sessions == 0


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


GRAMMAR_SOURCES: dict[str, Source] = {
    "draft model": DRAFT_MODEL,
    "lookup": Lookup(),
    "junk": Custom(junk),
}


def options(grammar: dict[str, Any], temperature: float = 1.0, **more: Any) -> Options:
    return Options(max_tokens=200, seed=5, temperature=temperature, **grammar, **more)


@pytest.mark.parametrize(
    ("kind", "temperature"), [("schema", 0.0), ("schema", 1.0), ("regex", 1.0), ("choice", 0.0), ("lark", 1.0)]
)
def test_the_text_is_the_same_in_every_mode(fused: Verifier, kind: str, temperature: float) -> None:
    grammar = GRAMMARS[kind]
    with Pair(fused.url, GRAMMAR_SOURCES["draft model"]) as pair:
        done = pair.generate("prompt", options(grammar, temperature, mode=Mode.TARGET)).read()
        assert done.stats.finish_reason == "stop" and done.stats.sources[TokenSource.FORCED] > 0
        if "json_schema" in grammar:
            assert set(json.loads(done.text)) == {"a_long_name", "numbers"}
        ways: list[dict[str, Any]] = [{"mode": Mode.FUSED}, {"mode": Mode.FUSED, "draft_n": 4}]
        for how in ways:
            assert pair.generate("prompt", options(grammar, temperature, **how)).read().token_ids == done.token_ids
    for source in GRAMMAR_SOURCES.values():
        with Pair(fused.url, source) as pair:
            ways = [{}, {"lockstep": True}, {"draft_n": 3}, {"draft_n": 0}, {"explain": True}]
            for how in ways:
                again = pair.generate("prompt", options(grammar, temperature, mode=Mode.REMOTE, **how)).read()
                assert again.token_ids == done.token_ids


@pytest.mark.parametrize("mode", [Mode.TARGET, Mode.REMOTE, Mode.FUSED])
def test_a_grammar_may_begin_behind_a_token(fused: Verifier, mode: Mode) -> None:
    with Pair(fused.url, GRAMMAR_SOURCES["draft model"]) as pair:
        how = options({"regex": "[0-9]{4}"}, mode=mode, lockstep=mode is Mode.REMOTE, grammar_after="e")
        text = pair.generate("prompt", how).read().text
    assert re.search(r"^[^e]*e[0-9]{4}$", text, re.DOTALL) or "e" not in text


def test_a_grammar_that_is_wrong_is_refused_by_name(fused: Verifier) -> None:
    with Pair(fused.url, GRAMMAR_SOURCES["draft model"]) as pair:
        for mode in (Mode.REMOTE, Mode.FUSED, Mode.TARGET):
            with pytest.raises(InvalidRequest, match=r"^json_schema#/items/not: "):
                pair.generate("prompt", Options(json_schema={"items": {"not": {"const": 1}}}, mode=mode)).read()
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


COUNT = 40
TARGET = ScriptedBackend(Script(seed=1))
IDS = TARGET.vocabulary.encode(PROMPT)
BIAS = {101: 6.0, 102: -100.0}
ENDING = dict.fromkeys(range(256), -100.0) | {END: 100.0}  # the end token is the likeliest everywhere
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"presence_penalty": 2.0, "repetition_penalty": 1.4, "logit_bias": BIAS},
    "sampled": {"temperature": 0.9, "frequency_penalty": 1.0, "min_p": 0.05, "logit_bias": BIAS, "top_p": 0.98},
}
ENDINGS: dict[str, dict[str, Any]] = {
    "late end": {"temperature": 0.9, "min_tokens": 17, "logit_bias": ENDING},
    "no end": {"min_tokens": 2**53, "logit_bias": ENDING},
}
EACH_SETTING = pytest.mark.parametrize("settings", (SETTINGS | ENDINGS).values(), ids=SETTINGS | ENDINGS)


def _unaware(vocabulary: Vocabulary, sampling: Sampling) -> Drafter:
    """A draft model that knows nothing of the processors."""
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=0.9)), sampling.unprocessed, vocabulary.size)


SOURCES: dict[str, Source] = {
    "draft model": DRAFT_MODEL,
    "another draft model": DraftModel("7", "scripted"),
    "lookup": Lookup(),
    "unaware": Custom(_unaware),
}


def _options(settings: dict[str, Any], **more: Any) -> Options:
    return Options(max_tokens=COUNT, seed=11, **settings, **more)


def _expected(options: Options) -> list[int]:
    return processed.plain(TARGET.logits_after, IDS, COUNT, options.sampling, TARGET.vocabulary.ends)


@EACH_SETTING
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_text_is_the_target_s_whatever_drafts(fused: Verifier, settings: dict[str, Any], source: Source) -> None:
    with Pair(fused.url, source) as pair:
        for how in ({}, {"lockstep": True}, {"draft_n": 3}, {"draft_n": 0}):
            options = _options(settings, **how)
            assert pair.generate(PROMPT, options).read().token_ids == _expected(options)


@EACH_SETTING
@pytest.mark.parametrize(
    "how", [{"mode": Mode.FUSED}, {"mode": Mode.FUSED, "draft_n": 5}, {"mode": Mode.TARGET}], ids=str
)
def test_the_text_is_the_same_on_the_server(fused: Verifier, settings: dict[str, Any], how: dict[str, Any]) -> None:
    options = _options(settings, **how)
    with Pair(fused.url, None) as pair:
        done = pair.generate(PROMPT, options).read()
    assert done.token_ids == _expected(options)
    assert done.stats.sampling == options.described()


def _logprobs(tokens: Sequence[int], top: int) -> list[TokenLogprobs]:
    rows = [TARGET.logits_after([*IDS, *tokens[:at]]) for at in range(len(tokens))]
    return [token_logprobs(row, token, top) for row, token in zip(rows, tokens, strict=True)]


@pytest.mark.parametrize("how", [{}, {"lockstep": True}, {"mode": "fused"}, {"mode": "target"}], ids=str)
def test_each_token_has_its_logprobs(fused: Verifier, how: dict[str, Any]) -> None:
    """Those of the target's own distribution: the processors change nothing of them."""
    options = _options(SETTINGS["sampled"], logprobs=4, **how)
    with Pair(fused.url, SOURCES["another draft model"]) as pair:
        *events, last = pair.generate(PROMPT, options)
    assert isinstance(last, Finished) and last.token_ids == _expected(options)
    tokens = [token for event in events if isinstance(event, Tokens) for token in event.tokens]
    assert [token.logprobs for token in tokens] == _logprobs(last.token_ids, 4) == last.stats.logprobs
    assert all(token.decision is None for token in tokens)
    assert last.stats.metrics()["logprobs"][0]["token"] == last.token_ids[0]


def keys(folder: Path, **limits: KeyLimits) -> Path:
    """A file of keys, each of which is its own name."""
    path = folder / "keys.toml"
    for name, each in limits.items():
        key_file.add(path, StoredKey(name, digest_of(name), each))
    return path


@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_text_goes_on_when_the_limit_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockstep: bool) -> None:
    """Each second request is refused. Meanwhile the verifier may go on by itself."""
    options = Options(max_tokens=300, temperature=0.8, seed=3, draft_n=6, lockstep=lockstep, mode=Mode.REMOTE)
    begin, asked = Account.begin_request, count()

    def begin_request(account: Account, limits: KeyLimits, now: float) -> None:
        if limits.requests and next(asked) % 2:
            raise RateLimited("not now", retry_after=0.005)
        begin(account, limits, now)

    monkeypatch.setattr(Account, "begin_request", begin_request)
    path = keys(tmp_path, limited=KeyLimits(requests=100), free=KeyLimits())
    texts = {}
    with serving(keys_file=path) as verifier:
        for name in ("free", "limited"):
            with Pair(verifier.url, DRAFT_MODEL, api_key=name) as pair:
                texts[name] = pair.generate("def f(x):", options).read().text
    assert next(asked) >= 2, "one was refused"
    assert texts["limited"] == texts["free"]
