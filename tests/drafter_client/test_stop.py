"""Stop strings: the text ends before the first of them, in every mode, and nothing behind it is reported."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client import DraftModel, Finished, Mode, Options, Pair, Tokens
from drafter_client.errors import BadOption
from tests.drafter_client.support import Verifier, plain, serving

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
PIECES = st.lists(st.sampled_from([*b"ab\n", *"é".encode(), END]), max_size=30)
STOPS = st.lists(st.sampled_from(["a", "ab", "ba\n", "é", "aé", "<end>"]), max_size=3)


@pytest.fixture(scope="module")
def fused() -> Any:
    with serving(draft_backend="ngram") as running:
        yield running


def _ids(count: int) -> list[int]:
    backend = ScriptedBackend(Script(seed=1))
    return plain(backend, backend.vocabulary.encode(PROMPT), count)


def _stop() -> tuple[str, int, int]:
    """A stop string, the characters before it, and the number of tokens to its end: a character of one token, in the
    middle of the text, that the text does not have before."""
    ids = _ids(40)
    at = next(at for at in range(15, 40) if ids[at] < 128 and ids[at] not in ids[:at])
    return chr(ids[at]), len(bytes(ids[:at]).decode(errors="replace")), at + 1


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_the_text_ends_before_the_stop_string_in_every_mode(fused: Verifier, mode: Mode, lockstep: bool) -> None:
    stop, length, count = _stop()
    options = Options(max_tokens=60, stop=stop, mode=mode, lockstep=lockstep)
    with Pair(fused.url, TOY) as pair:
        generation = pair.generate(PROMPT, options)
        *events, last = generation
        assert pair.generate(PROMPT, Options(max_tokens=30)).read().token_ids == _ids(30), "the pair goes on"
    assert isinstance(last, Finished) and last.token_ids == _ids(count) and last.finish_reason == "stop"
    assert last.text == generation.text == bytes(_ids(count)).decode(errors="replace")[:length]
    assert "".join(event.text for event in events if isinstance(event, Tokens)) == last.text
    stats = last.stats
    assert (stats.ended_by, stats.token_ids, stats.finish_reason) == ("stop_string", last.token_ids, "stop")
    assert sum(stats.sources.values()) == stats.generated_tokens == count and min(stats.sources.values()) >= 0
    assert fused.sessions == 0


def _text(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


@pytest.mark.parametrize("stop", ["", ["a", ""], [1], 5])
def test_what_is_no_stop_string_is_refused(stop: Any) -> None:
    with pytest.raises(BadOption, match="stop"):
        Options(stop=stop)
