"""Any order of requests and any draft gives the text of plain decoding; the position rule."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script
from specpair.protocol.errors import PositionBeyondCommitted, PositionInsidePrompt
from specpair.speculation.acceptance.judge import Rule, judge
from specpair.speculation.acceptance.strategies import Strategy, common_prefix
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.examples import examples
from tests.verifier_server.engine.bench import Asked, Bench, plain
from verifier_server.engine.arrived_drafts import check_position
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


PROMPT = (1, 2, 3)
END = 6


@cache
def logits_after(context: tuple[int, ...]) -> Logits:
    """Logits of a toy model of 7 ids, which depend on the last three tokens."""
    row = np.random.default_rng([3, *context[-3:]]).standard_normal(7).astype(np.float32)
    row[END] -= 1.0
    return row


class Model:
    """A verifier reduced to the position rule: the committed tokens, and how a draft extends them."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.tokens = list(PROMPT)
        self.judged = 0

    @property
    def finished(self) -> bool:
        return self.tokens[-1] == END

    def verify(self, position: int, drafts: list[int]) -> list[int]:
        """The committed tokens from `position` on."""
        fresh = None if self.finished else Draft.chain(position, drafts).fresh(self.tokens[position:])
        if fresh is not None:
            rows = [logits_after(tuple(self.tokens + fresh.ids[:at])) for at in range(len(fresh) + 1)]
            self.tokens += [
                ruling.token
                for ruling in judge(fresh.tokens, rows, Rule(Strategy.COUPLED, self.sampling), len(self.tokens), {END})
            ]
            self.judged += len(fresh)
        return self.tokens[position:]


def plain_decoding(sampling: Sampling, length: int) -> list[int]:
    model = Model(sampling)
    while len(model.tokens) < length and not model.finished:
        model.verify(len(model.tokens), [])
    return model.tokens


# How far before the committed end the draft starts (a stale or repeated one starts far back), how many of its tokens
# are right, and which tokens follow them.
drafts_sent_positions = st.tuples(st.integers(0, 12), st.integers(0, 8), st.lists(st.integers(0, 6), max_size=5))


@examples(100)
@given(st.integers(0, 999), st.sampled_from([0.0, 1.0]), st.lists(drafts_sent_positions, max_size=30))
def test_any_drafts_leave_the_text_of_plain_decoding(
    seed: int, temperature: float, sent: list[tuple[int, int, list[int]]]
) -> None:
    sampling = Sampling(seed, temperature)
    text = plain_decoding(sampling, len(PROMPT) + 30 * 14)
    model = Model(sampling)
    for back, right, wrong in sent:
        before = list(model.tokens)
        position = max(len(PROMPT), len(before) - back)
        drafts = text[position : position + right] + wrong
        reply = model.verify(position, drafts)
        again = model.verify(position, drafts)
        assert model.tokens[: len(before)] == before, "a committed token never changes"
        assert model.tokens == text[: len(model.tokens)]
        assert reply == text[position : position + len(reply)]
        assert reply or model.finished, "a response holds at least one token"
        assert again[: len(reply)] == reply, "a retry gets the same tokens, and perhaps more"


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (2, "position 2 lies inside the prompt of 3 tokens"),
        (3, None),
        (5, None),
        (6, "position 6 lies beyond the 5 committed tokens"),
    ],
)
def test_generated_positions_alone_are_accepted(position: int, said: str | None) -> None:
    if said is None:
        check_position(5, 3, position)
    else:
        with pytest.raises(PositionInsidePrompt if position < 3 else PositionBeyondCommitted, match=said) as caught:
            check_position(5, 3, position)
        assert caught.value.details == {"total_tokens": 5}
