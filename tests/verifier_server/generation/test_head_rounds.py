"""Server-side drafting by the target's own head, alone and before a draft model: the text is the target's."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from queue import SimpleQueue

import pytest

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import grammars_for
from specpair.protocol.errors import ShuttingDown, SpecPairError
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.specpair.speculation import chi_square
from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import Bench, plain
from tests.verifier_server.support import FILTERED, GREEDY, LENGTH, PROMPT_IDS, WARM, body_of
from tests.verifier_server.timed_model import PassingTime, TimedModel
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.engine import Engine
from verifier_server.engine.interface import EngineInfo
from verifier_server.engine.scheduler import Scheduler
from verifier_server.generation.draft_model import SharedDraftModel
from verifier_server.generation.fused_text import DraftCounts
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.sessions import Session

BY = pytest.mark.parametrize("draft_n", [3, None], ids=["alone", "in rounds"])
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
STEP = 0.02  # seconds of a pass of the target; of its head, and of the draft model, a twentieth
TIMES = [STEP * (1.0 + 0.01 * more) for more in range(17)]
MAX_DRAFTS = 16


@dataclass(frozen=True)
class Written:
    """A text that the server has written."""

    tokens: list[int]
    counts: DraftCounts


class HeadServer:
    """An engine with a head of some depth, with server-side drafting."""

    def __init__(
        self,
        *,
        agreement: float = 0.8,
        depth: int = 3,
        slots: int = 4,
        script: Script = SCRIPT,
        draft: Script | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """`draft`: of a draft model."""
        self._clock, self._vocabulary = PassingTime(lambda: 0.0), vocabulary
        self.target = self._model(replace(script, head_agreement=agreement), slots, STEP, depth)
        info = EngineInfo.of(self.target, MAX_DRAFTS, STEP / 20)
        # No pass waits for more requests, since only passes let time pass.
        options = {"max_drafts": MAX_DRAFTS, "pass_times": TIMES, "head_time": STEP / 20, "batching_window": 0.0}
        self.engine = Engine(Scheduler(self.target, **options), self._clock)  # type: ignore[arg-type]
        self.draft = None if draft is None else self._model(draft, 4, STEP / 20, 0)
        model = SharedDraftModel(self.draft, 4, info, self._clock)
        self.drafting = ServerDrafting(model, TIMES, self._clock, lambda: None)
        self.engine.start()

    def _model(self, script: Script, slots: int, seconds: float, depth: int) -> TimedModel:
        model = TimedModel(script, slots=slots, context_length=256, max_batch_tokens=128, head_depth=depth)
        model.clock, model.chance = self._clock, random.Random(0)
        model.pass_time, model.token_time, model.head_time = seconds, 0.01 * seconds, STEP / 20
        model.vocabulary = self._vocabulary or model.vocabulary
        return model

    def session(self, number: int, spec: TextSpec, prompt: Sequence[int], length: int = LENGTH) -> Session:
        known, ends = self.target.vocabulary, self.target.vocabulary.ends
        grammars = grammars_for(spec.drawn, known)
        return Session(str(number), [*prompt], len(prompt), spec, len(prompt) + length, ends, grammars=grammars)

    def write(
        self, sessions: Sequence[Session], draft_n: int | None = None, prediction: Sequence[int] | None = None
    ) -> list[Written]:
        """Write these texts, all at once."""
        counts, answers = [DraftCounts() for _ in sessions], SimpleQueue[Answer | SpecPairError]()
        for session, counted in zip(sessions, counts, strict=True):
            self.drafting.start(self.engine, session, draft_n, counted, session.prompt_len, answers.put, prediction)
        left = len(sessions)
        while left:
            answer = answers.get(timeout=20)
            assert isinstance(answer, Answer), answer
            left -= answer.finish_reason is not None
        for session in sessions:
            self.engine.forget(session)
        self.engine.check_integrity()
        return [
            Written(session.tokens[session.prompt_len :], counted)
            for session, counted in zip(sessions, counts, strict=True)
        ]

    def one(self, sampling: Sampling, draft_n: int | None = None, **options: object) -> Written:
        """Write one text."""
        session = self.session(0, TextSpec.of(sampling, **options), PROMPT_IDS)
        [written] = self.write([session], draft_n)
        return written

    def stop(self) -> None:
        self.engine.stop()
        self.drafting.stop()


@pytest.fixture
def servers() -> Iterator[list[HeadServer]]:
    """To be filled by a test; they are stopped afterwards."""
    made: list[HeadServer] = []
    yield made
    for each in made:
        each.stop()


def server(servers: list[HeadServer], **options: object) -> HeadServer:
    servers.append(HeadServer(**options))  # type: ignore[arg-type]
    return servers[-1]


@BY
@SAMPLINGS
@pytest.mark.parametrize("agreement", [0.0, 0.8, 1.0])
def test_a_text_by_the_head_alone_is_the_target_s(
    servers: list[HeadServer], agreement: float, sampling: Sampling, draft_n: int | None
) -> None:
    written = server(servers, agreement=agreement).one(sampling, draft_n)
    assert written.tokens == plain(SCRIPT, PROMPT_IDS, LENGTH, sampling)
    counts = written.counts
    assert 1 + counts.rounds + counts.accepted == LENGTH
    if agreement == 1.0:
        assert counts.accepted == counts.drafted > LENGTH / 2
    assert len(counts.accepted_per_position) <= 3, "as many as the head drafts"


@pytest.mark.parametrize("strategy", [Strategy.COUPLED, Strategy.PROBABILISTIC])
def test_a_draft_is_no_longer_than_the_head_drafts(servers: list[HeadServer], strategy: Strategy) -> None:
    written = server(servers, agreement=1.0, depth=2).one(WARM, 8, strategy=strategy)
    assert (written.counts.drafted, written.counts.rounds) == (26, 13), "two tokens a round"


def test_several_texts_share_the_steps_of_the_head(servers: list[HeadServer]) -> None:
    heads = server(servers)
    prompts = [[256, number] for number in range(4)]
    sessions = [heads.session(number, TextSpec.of(WARM), prompt) for number, prompt in enumerate(prompts)]
    texts = heads.write(sessions)
    assert [each.tokens for each in texts] == [plain(SCRIPT, prompt, LENGTH, WARM) for prompt in prompts]
    assert all(each.counts.accepted > 0 for each in texts)
    drafted = sum(each.counts.drafted for each in texts)
    assert heads.target.head_steps < drafted, "a step drafts for more than one of them"


def test_more_texts_than_slots_of_the_target(servers: list[HeadServer]) -> None:
    heads = server(servers, slots=1)
    prompts = [[256, number] for number in range(3)]
    sessions = [heads.session(number, TextSpec.of(WARM), prompt) for number, prompt in enumerate(prompts)]
    texts = heads.write(sessions)
    assert [each.tokens for each in texts] == [plain(SCRIPT, prompt, LENGTH, WARM) for prompt in prompts]


def test_the_head_drafts_first_and_then_the_model(servers: list[HeadServer]) -> None:
    heads = server(servers, agreement=1.0, depth=2, draft=SCRIPT)
    written = heads.one(WARM)
    assert written.tokens == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
    assert heads.draft is not None and heads.target.head_steps > 0
    assert len(written.counts.accepted_per_position) > 2, "the model drafts behind the tokens of the head"


@BY
def test_a_text_with_a_grammar(servers: list[HeadServer], draft_n: int | None) -> None:
    vocabulary = ByteVocabulary()
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 5, "maxItems": 9}
    script = Script(seed=4, sharpness=1.5, end_bias=0.0)
    for sampling in (replace(GREEDY, json_schema=schema), replace(WARM, json_schema=schema)):
        alone = Bench(backend=ScriptedBackend(script, context_length=256))
        alone.backend.vocabulary = vocabulary
        heads = server(servers, script=script, agreement=1.0, vocabulary=vocabulary)
        text = alone.decode(
            alone.open(PROMPT_IDS, sampling=sampling, grammars=grammars_for(sampling, vocabulary), max_tokens=LENGTH)
        )
        written = heads.one(sampling, draft_n)
        assert written.tokens == text
        assert heads.target.head_steps > 0 and written.counts.accepted > 0


@BY
@pytest.mark.parametrize("strategy", [Strategy.DETERMINISTIC, Strategy.GREEDY])
def test_strategies_of_the_argmax(servers: list[HeadServer], strategy: Strategy, draft_n: int | None) -> None:
    written = server(servers, agreement=1.0).one(WARM, draft_n, strategy=strategy)
    assert written.tokens == plain(SCRIPT, PROMPT_IDS, LENGTH)
    assert (written.counts.accepted > 0) == (strategy is Strategy.DETERMINISTIC)


def test_probabilistic_texts_are_exact_samples_of_the_target(servers: list[HeadServer]) -> None:
    """The second and third token of 300 texts of four, drafted by a head that is independent of the target."""
    script, ids = Script(seed=2, sharpness=2.0, support=3), range(3)
    heads, target = server(servers, script=script, agreement=0.0), ScriptedBackend(script)
    specs = [TextSpec.of(Sampling(seed, 1.0), strategy=Strategy.PROBABILISTIC) for seed in range(300)]
    sessions = [heads.session(number, spec, PROMPT_IDS, 4) for number, spec in enumerate(specs)]
    texts = heads.write(sessions, draft_n=2)
    assert sum(each.counts.drafted for each in texts) >= 600

    def p(*before: int) -> list[float]:
        return probabilities(target.logits_after([*PROMPT_IDS, *before]), Sampling(0, 1.0)).tolist()

    found = Counter(tuple(each.tokens[1:3]) for each in texts)
    pairs = list(product(ids, ids))
    expected = [sum(p()[first] * p(first)[b] * p(first, b)[c] for first in ids) for b, c in pairs]
    assert chi_square.fits_pooled([found[pair] for pair in pairs], expected)


@BY
@SAMPLINGS
def test_a_prediction_is_taken_before_the_head_drafts(
    servers: list[HeadServer], sampling: Sampling, draft_n: int | None
) -> None:
    text = plain(SCRIPT, PROMPT_IDS, LENGTH, sampling)
    edited = [*text[:15], 7, 7, 7, *text[20:]]
    for prediction, least in ((text, 20), (edited, 10), ([7] * LENGTH, 0)):
        heads = server(servers)
        [written] = heads.write([heads.session(0, TextSpec.of(sampling), PROMPT_IDS)], draft_n, prediction)
        assert written.tokens == text
        assert written.counts.prediction_accepted >= least


@BY
def test_a_head_that_fails_leaves_the_text_alone(servers: list[HeadServer], draft_n: int | None) -> None:
    heads = server(servers)
    heads.target.head_failing = 1.0
    written = heads.one(WARM, draft_n)
    assert written.tokens == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
    assert (written.counts.accepted, written.counts.failure) == (0, None)


@BY
def test_stopping_ends_texts_that_the_head_drafts(servers: list[HeadServer], draft_n: int | None) -> None:
    heads = HeadServer()
    answers = SimpleQueue[Answer | SpecPairError]()
    for number in range(2):
        session = heads.session(number, TextSpec.of(WARM), [256, number], 200)
        heads.drafting.start(heads.engine, session, draft_n, DraftCounts(), 2, answers.put)
    answers.get(timeout=20)
    heads.stop()
    found = [answers.get(timeout=20)]
    while not answers.empty():
        found.append(answers.get())
    assert sum(isinstance(each, ShuttingDown) for each in found) == 2


def test_the_mode_fused_is_there_without_a_draft_model(serve: Serve) -> None:
    live = serve(ScriptedBackend(replace(SCRIPT, head_agreement=0.9), head_depth=3))
    reply = live.post("/generate", body_of(WARM, draft_n=3))
    assert reply["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
    assert reply["draft_model"] == "MTP head"
    stats = reply["speculation"]
    assert 1 + stats["rounds"] + stats["accepted"] == LENGTH and stats["accepted"] > 0
    assert "draft_context" not in stats, "no other model reads the text"
    model = live.http.get("/model").json()
    assert (model["head"], model["head_depth"]) == ("MTP head", 3) and model["head_pass_ms"] > 0
