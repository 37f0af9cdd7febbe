"""Texts that keep to a grammar in the engine: what is forced needs no pass, and drafts change nothing."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, Script
from specpair.grammar.compiling import Grammars
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.token_sources import joined
from specpair.speculation.sampling.sampling import Sampling
from tests.examples import examples
from tests.verifier_server.engine.bench import Bench
from verifier_server.sessions import Session

SCRIPT = Script(seed=4, sharpness=1.5, end_bias=0.0)
SCHEMA = {
    "type": "object",
    "properties": {"a_long_name": {"type": "string", "maxLength": 6}, "number": {"enum": [1, 12, 123]}},
    "required": ["a_long_name", "number"],
    "additionalProperties": False,
}
SAMPLINGS = [Sampling(0, 0.0, json_schema=SCHEMA), Sampling(7, 1.0, json_schema=SCHEMA, presence_penalty=0.5)]


def opened(bench: Bench, sampling: Sampling, **options: object) -> Session:
    return bench.open([256, 9, 9, 2], sampling=sampling, grammars=Grammars(bench.backend.vocabulary), **options)  # type: ignore[arg-type]


def marks(session: Session) -> str:
    return joined(session.details.sources)


def unforced(sampling: Sampling) -> list[int]:
    """The text where each token has a pass of its own, as log probabilities are asked for."""
    bench = Bench(SCRIPT)
    session = opened(bench, sampling, logprobs=0)
    tokens = bench.decode(session)
    assert "f" not in marks(session)
    return tokens


def drafted(bench: Bench, session: Session, right: Sequence[int], seed: int, width: int) -> list[int]:
    random = np.random.default_rng(seed)
    while session.finish_reason is None:
        at = len(session.tokens) - session.prompt_len
        drafts = [each if random.random() < 0.7 else int(random.integers(256)) for each in right[at : at + width]]
        bench.verify(session, len(session.tokens), drafts)
    return session.tokens[session.prompt_len :]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["argmax", "sampled"])
def test_forced_tokens_take_no_pass(sampling: Sampling) -> None:
    bench, text = Bench(SCRIPT), unforced(sampling)
    session = opened(bench, sampling)
    asked, passes = bench.ask(session, session.prompt_len, until_end=True), 0
    while not asked.settled:
        bench.engine.step()
        bench.engine.check_integrity()
        passes += 1
    assert session.tokens[session.prompt_len :] == text
    json.loads(bench.backend.vocabulary.decode(text))
    assert text[-1] == END and session.finish_reason == "stop"
    assert marks(session).count("f") + passes == len(text), "a token is forced, or a pass brought it"
    assert passes < len(text) / 2


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["argmax", "sampled"])
@examples(10)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(0, 9))
def test_drafts_do_not_change_the_text(sampling: Sampling, seed: int, width: int) -> None:
    bench, text = Bench(SCRIPT, slots=1), unforced(sampling)
    assert drafted(bench, opened(bench, sampling), text, seed, width) == text


def test_a_text_that_is_continued_stands_where_it_stood_in_its_grammar() -> None:
    text = unforced(SAMPLINGS[1])
    for kept in (1, 5, 17, len(text) - 1):
        bench = Bench(SCRIPT)
        session = opened(bench, SAMPLINGS[1])
        session.resume(text[:kept])
        assert drafted(bench, session, text, kept, 3) == text


@pytest.mark.parametrize("even_width", [None, 8])
def test_the_beginning_that_is_forced_is_read_with_the_prompt(even_width: int | None) -> None:
    """Not where passes of another width leave other bits: a text that is continued reads it apart from the prompt."""
    bench, text = Bench(SCRIPT), unforced(SAMPLINGS[0])
    bench.backend.even_width = even_width
    session = opened(bench, SAMPLINGS[0])
    asked = bench.ask(session, session.prompt_len)
    assert bench.engine.step()
    bench.engine.check_integrity()
    answer = asked.answer
    assert answer.tokens == text[: len(answer.tokens)] and answer.judged == 0
    first = marks(session)[: len(answer.tokens)]
    assert bench.backend.fed == session.prompt_len + (first.index("b") if even_width is None else 0)
    assert first.index("b") == (len('{"a_long_name": "') if even_width is None else 0)


def test_a_grammar_that_fails_before_its_first_token_fails_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(SCRIPT)
    session, other = opened(bench, SAMPLINGS[0]), bench.open("another text")
    assert session.processors is not None

    def too_much(*_: object) -> list[int]:
        raise InvalidRequest("the grammar takes too much")

    monkeypatch.setattr(session.processors, "certain", too_much)
    with pytest.raises(InvalidRequest, match="takes too much"):
        bench.verify(session, session.prompt_len)
    bench.verify(other, len(other.tokens))
    bench.engine.check_integrity()
