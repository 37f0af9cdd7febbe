"""Any order of requests and any draft gives the text of plain decoding."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling
from tests.examples import examples
from tests.verifier_server.engine.bench import Asked, Bench, plain
from verifier_server.sessions import Session

SCRIPT = Script(seed=3, support=40, end_bias=5.0)
LENGTH = 48  # tokens that a session may generate
SESSIONS = 4


@dataclass
class SentDraft:
    """A draft, relative to what is committed when it is sent."""

    session: int
    back: int  # how far before the committed end it starts
    right: int  # draft tokens of the target's text
    wrong: list[int]  # draft tokens after them
    steps: int  # passes of the engine before the next draft is sent


drafts_sent = st.builds(
    SentDraft,
    session=st.integers(0, SESSIONS - 1),
    back=st.integers(0, 10),
    right=st.integers(0, 8),
    wrong=st.lists(st.integers(0, 257), max_size=4),
    steps=st.integers(0, 2),
)
TEXTS: dict[tuple[int, float], list[int]] = {}


def prompt_of(number: int) -> list[int]:
    return [256, *range(1, 2 + 9 * number)]  # of different lengths, the longest wider than a batch


def text_of(number: int, temperature: float) -> list[int]:
    if (number, temperature) not in TEXTS:
        TEXTS[number, temperature] = plain(SCRIPT, prompt_of(number), LENGTH, Sampling(number, temperature))
    return TEXTS[number, temperature]


@examples(100)
@given(
    temperature=st.sampled_from([0.0, 0.8]),
    slots=st.integers(1, 4),
    batch=st.sampled_from([13, 20, 200]),
    max_rollback=st.sampled_from([None, 0, 3]),
    sent=st.lists(drafts_sent, max_size=25),
)
def test_any_interleaving_gives_the_text_of_plain_decoding(
    temperature: float, slots: int, batch: int, max_rollback: int | None, sent: list[SentDraft]
) -> None:
    bench = Bench(SCRIPT, slots=slots, batch=batch, max_rollback=max_rollback, max_drafts=12)
    sessions = [
        bench.open(prompt_of(number), max_tokens=LENGTH, sampling=Sampling(number, temperature))
        for number in range(SESSIONS)
    ]
    asked: list[tuple[int, Asked]] = []
    for draft in sent:
        session, text = sessions[draft.session], text_of(draft.session, temperature)
        at = max(0, len(session.tokens) - session.prompt_len - draft.back)
        drafts = text[at : at + draft.right] + draft.wrong
        asked.append((draft.session, bench.ask(session, session.prompt_len + at, drafts)))
        for _ in range(draft.steps):
            bench.engine.step()
    bench.run(*(each for _, each in asked))
    for number, each in asked:
        check_answer(sessions[number], each, text_of(number, temperature))
    for number, session in enumerate(sessions):
        text, generated = text_of(number, temperature), session.tokens[session.prompt_len :]
        assert generated == text[: len(generated)]
        assert bench.decode(session) == text, "and the rest of the text, too"


def check_answer(session: Session, asked: Asked, text: list[int]) -> None:
    answer, request = asked.answer, asked.request
    at = request.position - session.prompt_len
    assert answer.position == request.position
    assert answer.tokens == text[at : answer.total_tokens - session.prompt_len]
    assert answer.accepted == common_prefix(request.draft.ids, answer.tokens)
    assert answer.judged <= len(request.draft)
    ended = answer.total_tokens - session.prompt_len == len(text)
    assert answer.finish_reason == (("stop" if text[-1] == 257 else "length") if ended else None)
    assert answer.tokens or ended, "at least one token unless the text has ended"


def test_drafts_too_long_for_one_pass_are_refused() -> None:
    bench = Bench(SCRIPT, batch=8, max_drafts=64)
    session = bench.open([1] * 5)
    assert bench.engine.info.max_drafts == 7
    assert bench.verify(session, 5, [0] * 7).judged == 7
    asked = bench.ask(session, 5, [*session.tokens[5:], *[0] * 8])
    bench.run(asked, steps=3)
    with pytest.raises(Exception, match="8 new draft tokens: this verifier judges at most 7 at once"):
        _ = asked.answer
