"""A pair with logit processors writes the target's text in every mode, whatever drafts; tokens have logprobs."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from drafter_client import Custom, DraftModel, Finished, Lookup, Mode, Options, Pair, Source, Tokens
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.distribution import TokenLogprobs, token_logprobs
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier, running
from tests.specpair.speculation import processed
from verifier_server.settings import Settings

PROMPT = "def f(x):"
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
    "draft model": DraftModel("1", "scripted"),
    "another draft model": DraftModel("7", "scripted"),
    "lookup": Lookup(),
    "unaware": Custom(_unaware),
}


@pytest.fixture(scope="module")
def fused() -> Iterator[Verifier]:
    settings = Settings(backend="scripted", draft_backend="scripted", draft_model="1", model="1")
    with running(settings) as verifier:
        yield verifier


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
