"""Server-side drafting with its real threads: the target's own head, a draft model or both draft for several texts.

Passes and draft steps add modelled times to the clock, and they fail now and then. There are fewer slots than texts.
Texts are cancelled and begun again, and their verifier is killed: another one continues them. The threads run in real
time, so that a seed decides what happens, and not when. The texts must not depend on that.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from queue import SimpleQueue
from typing import NamedTuple

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from lab.benchmarks.faults.pairs import random_head
from specpair.engines.backend import Backend
from specpair.grammar.of_text import grammars_for, prepare_grammars
from specpair.protocol.errors import EngineError, SpecPairError
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.timed_model import PassingTime, TimedModel
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.engine import Engine
from verifier_server.engine.interface import EngineInfo
from verifier_server.engine.scheduler import Scheduler
from verifier_server.generation.draft_model import SharedDraftModel
from verifier_server.generation.fused_text import DraftCounts
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.sessions import Session

PATIENCE = 60.0  # seconds without an answer after which a world counts as hung
MAX_DRAFTS = 16
SCHEMA = {"type": "array", "items": {"enum": ["one", "other"]}, "minItems": 2, "maxItems": 3}
STRATEGIES = (Strategy.COUPLED, Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY, Strategy.PROBABILISTIC)


@lru_cache
def vocabulary() -> ByteVocabulary:
    """That of all models, with its grammars."""
    found = ByteVocabulary()
    prepare_grammars(found, tries=False)
    return found


class AskedText(NamedTuple):
    """A text, and how it is asked for."""

    prompt: list[int]
    spec: TextSpec
    limit: int  # tokens, prompt included
    draft_n: int | None
    fused: bool  # else the target decodes it alone
    prediction: list[int] | None
    expected: list[int] | None  # None: it depends on what is drafted


class Life(NamedTuple):
    """A text from one begin to its end, or to the next begin."""

    number: int
    session: Session
    counts: DraftCounts
    cancel: Callable[[], None]


class DraftingWorld:
    """The world of a seed: a verifier that can be killed, and the texts that it writes."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self._clock, self.kills, self.begins = PassingTime(), 0, 0
        self._depth, agreement = random_head(seed)
        self._script = Script(
            seed=rng.randrange(3), end_bias=rng.choice([-100.0, -100.0, 4.0]), support=None, head_agreement=agreement
        )
        self._slots, self._context = rng.randint(1, 5), rng.choice([64, 64, 256])
        self._batch, self._can_copy = rng.choice([34, 128]), rng.random() < 0.7
        self._step, self._wider = 0.02, rng.choice([0.0, 0.02, 0.3])
        self._failing, self._head_failing = rng.choice([0.0, 0.0, 0.01]), rng.choice([0.0, 0.0, 0.1])
        self._drafts_with_model = not self._depth or rng.random() < 0.5
        self._draft_agreement, self._draft_step = rng.choice([0.5, 0.9, 1.0]), rng.choice([0.001, 0.004])
        self._draft_failing = rng.choice([0.0, 0.0, 0.02])
        self.texts = [self._text(number) for number in range(rng.randint(1, 7))]
        self.known = [[*each.prompt] for each in self.texts]
        self.lives: list[Life | None] = [None for _ in self.texts]
        self.may_fail = self._failing > 0.0
        self.answers: SimpleQueue[tuple[int, int, Answer | SpecPairError]] = SimpleQueue()
        self._start()

    def _model(self, script: Script, slots: int, pass_time: float, failing: float, **options: object) -> TimedModel:
        model = TimedModel(script, slots=slots, context_length=self._context, **options)  # type: ignore[arg-type]
        model.vocabulary, model.clock, model.chance = vocabulary(), self._clock, random.Random(self.begins)
        model.pass_time, model.token_time = pass_time, pass_time * self._wider
        model.failing, model.head_time, model.head_failing = failing, 0.1 * self._step, self._head_failing
        return model

    def _start(self) -> None:
        """Start a verifier, which knows no session."""
        self.target = self._model(
            self._script,
            self._slots,
            self._step,
            self._failing,
            max_batch_tokens=self._batch,
            can_copy=self._can_copy,
            head_depth=self._depth,
        )
        times = [self._step * (1.0 + self._wider * tokens) for tokens in range(1, 18)]
        info = EngineInfo.of(self.target, MAX_DRAFTS, self.target.head_time)
        scheduler = Scheduler(self.target, max_drafts=MAX_DRAFTS, pass_times=times, head_time=info.head_time)
        self.engine = Engine(scheduler, self._clock)
        draft: Backend | None = None
        if self._drafts_with_model:
            script = replace(self._script, agreement=self._draft_agreement)
            draft = self._model(script, 4, self._draft_step, 0.0)
        model = SharedDraftModel(draft, 4, info, self._clock)
        if isinstance(draft, TimedModel):
            draft.failing = self._draft_failing  # but not where it is timed
        self.drafting = ServerDrafting(model, times, self._clock, lambda: None)
        self.engine.start()

    def _text(self, number: int) -> AskedText:
        rng = self._rng
        strategy, temperature = rng.choice(STRATEGIES), rng.choice([0.0, 0.8])
        sampling = Sampling(rng.randrange(100), temperature)
        if rng.random() < 0.3:
            sampling = replace(sampling, json_schema=SCHEMA)
        prompt = [256, *rng.choices(range(256), k=rng.randint(0, 2)), number % 3]
        limit = min(len(prompt) + rng.choice([1, 2, rng.randint(3, 60)]), self._context)
        spec = TextSpec.of(sampling, strategy=strategy)
        exact = strategy in DRAFTER_INVARIANT or sampling.greedy
        expected = self._expected(prompt, spec, limit) if exact else None
        likely = (expected or [])[:]
        for _ in range(rng.randint(0, 3)):
            likely[rng.randint(0, len(likely)) :] = rng.choices(range(256), k=rng.randint(0, 8))
        draft_n = rng.choice([None, None, 0, rng.randint(1, 8)])
        return AskedText(prompt, spec, limit, draft_n, rng.random() < 0.85, rng.choice([None, likely]), expected)

    def _expected(self, prompt: list[int], spec: TextSpec, limit: int) -> list[int]:
        """The text of the target alone."""
        model = ScriptedBackend(self._script, slots=1, context_length=self._context)
        model.vocabulary = vocabulary()
        engine = Engine(Scheduler(model))
        session = self._session("alone", AskedText(prompt, spec, limit, None, False, None, None), prompt)
        request = Request(session, Draft(len(prompt)), until_end=True)
        engine.submit(request)
        while session.finish_reason is None:
            assert engine.step(), "the target alone writes no further"
        return session.tokens[len(prompt) :]

    def _session(self, name: str, text: AskedText, known: Sequence[int]) -> Session:
        grammars = grammars_for(text.spec.drawn, vocabulary())
        prompt, ends = text.prompt, vocabulary().ends
        session = Session(name, [*prompt], len(prompt), text.spec, text.limit, ends, grammars=grammars)
        if len(known) > len(prompt):
            session.resume(known[len(prompt) :])
        return session

    def begin(self, number: int) -> None:
        """Begin a text, or go on behind what is known of it."""
        text, known, counts = self.texts[number], self.known[number], DraftCounts()
        self.begins += 1
        begun, session = self.begins, self._session(f"{number}, {self.begins}", text, known)

        def on_answer(result: Answer | SpecPairError) -> None:
            self.answers.put((number, begun, result))

        if text.fused:
            cancel = self.drafting.start(
                self.engine, session, text.draft_n, counts, len(known), on_answer, text.prediction
            )
        else:
            request = Request(session, Draft(len(known)), on_answer, until_end=True)
            self.engine.submit(request)

            def cancel() -> None:
                request.cancelled = True

        self.lives[number] = Life(begun, session, counts, cancel)

    def end(self, number: int) -> None:
        """Forget a text's session, as its server does."""
        life, self.lives[number] = self.lives[number], None
        if life is not None:
            life.cancel()
            self.engine.forget(life.session)

    def kill(self) -> None:
        """Kill the verifier; another one takes its place, and continues the texts."""
        self.kills += 1
        self.stop()
        self._start()

    def stop(self) -> None:
        """Stop the verifier."""
        self.engine.stop()
        self.drafting.stop()

    def take(self, number: int, answer: Answer) -> bool:
        """Take in an answer; whether it is the last one of its text."""
        known, text = self.known[number], self.texts[number]
        assert answer.position <= len(known) <= answer.total_tokens, f"text {number}: a gap before {answer.position}"
        new = answer.tokens[len(known) - answer.position :]
        assert answer.tokens[: len(known) - answer.position] == known[answer.position :], f"text {number} has changed"
        known += new
        expected, generated = text.expected, known[len(text.prompt) :]
        if expected is not None:
            assert generated == expected[: len(generated)], f"text {number}: {generated} is not {expected}"
        if answer.finish_reason is None:
            return False
        assert expected is None or generated == expected, f"text {number} ends with {generated}, not {expected}"
        assert len(known) == text.limit or generated[-1] in vocabulary().ends
        return True


def run(seed: int) -> str:
    """Run the world of a seed, and check it. Returns what does not depend on the moments."""
    world = DraftingWorld(seed)
    rng, left = random.Random(f"{seed} acts"), set(range(len(world.texts)))
    kills = sorted(rng.randint(1, 60) for _ in range(rng.choice([0, 0, 1, 3])))
    cancels = sorted(rng.randint(1, 60) for _ in range(rng.choice([0, 0, 1, 4])))
    try:
        for number in sorted(left):
            world.begin(number)
        answers = 0
        while left:
            number, begun, result = world.answers.get(timeout=PATIENCE)
            life = world.lives[number]
            if life is None or life.number != begun:
                continue  # what came on the way to one that has left
            answers += 1
            if isinstance(result, Answer):
                if world.take(number, result):
                    left.discard(number)
                    world.end(number)
            else:
                assert isinstance(result, EngineError) and world.may_fail, f"text {number}: {result!r}"
                world.end(number)
                world.begin(number)
            while kills and answers >= kills[0]:
                kills.pop(0)
                world.kill()
                for each in sorted(left):
                    world.lives[each] = None
                    world.begin(each)
            while cancels and answers >= cancels[0]:
                cancels.pop(0)
                for each in sorted(left)[:1]:
                    world.end(each)
                    world.begin(each)
        world.engine.check_integrity()
        state = world.engine.state
        assert (state.slots_in_use, state.waiting) == (0, 0), f"left of the texts: {state}"
    finally:
        world.stop()
    lengths = [len(known) for known, text in zip(world.known, world.texts, strict=True) if text.expected is not None]
    return f"{len(world.texts)} texts, {sum(lengths)} tokens"
