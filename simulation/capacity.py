"""Capacity in virtual time: the real scheduler and the real controllers; time, network and costs are modelled.

Clients start at random within a fifth of a second, all think at the same pace, and are watched for some seconds behind
a warm-up. Their programs take no time. Forms of clients and verifiers:

    ours          drafters with all mechanisms on, as `python -m drafter_client` runs
    k=4           four drafts, send, wait: what public REST pairs do; does not say when its next request comes
    target        the target alone: texts decoded to their end on the server, what `/generate` does
    one by one    a verifier that judges one request at a time, in order of arrival: ours and k=4
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from simulation.capacity_model import Knowing, KnownText, Metrics, Target, TextRange, pass_ms, percentile
from simulation.paced import Cost
from simulation.virtual_time import Network, VirtualDrafter, World
from speculation.acceptance.strategies import Strategy
from speculation.errors import SpecPairError
from speculation.policy.draft_length import MAX_AUTO
from speculation.sampling.sampling import Sampling
from verifier_server.engine.batch_plan import BatchPlan
from verifier_server.engine.batching_window import LONGEST
from verifier_server.engine.composer import Composer
from verifier_server.engine.requests import Answer, Request
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.sessions import Session

_WITHIN = 0.2  # seconds in which the clients start
_CONTEXT = 4096
_BRANCHES = 6  # continuations that a drafter expands at once
GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Setting:
    """What everything takes, in milliseconds; how long is watched, in seconds."""

    target: Cost
    drafter: Cost
    rtt_ms: float = 5.0
    k: int = 4
    warm_up: float = 2.0
    seconds: float = 6.0

    @property
    def thinking_ms(self) -> float:
        """Of a client in lockstep: from a response's departure to the arrival of the next request."""
        return self.rtt_ms + self.k * self.drafter.decode_ms


class Starting(Protocol):
    """A party that begins when it is started."""

    def start(self) -> None:
        """Begin."""


class Client(Starting, Protocol):
    """A client with a text."""

    text: KnownText
    session: Session

    @property
    def times(self) -> list[float]:
        """When each token behind the first was known here, in seconds."""


class Meter:
    """Passes by a cost, as `World` asks for it, counted."""

    def __init__(self, cost: Cost) -> None:
        self.passes: list[tuple[int, float]] = []  # sessions in it, and seconds
        self._cost = cost

    def __call__(self, plan: BatchPlan) -> float:
        seconds = self._cost.of(plan.batch) / 1e3
        self.passes.append((len(plan.batch), seconds))
        return seconds


class Replayed:
    """A client in lockstep that replays its text's agreement: the drafts are known, making them takes its time."""

    def __init__(self, world: World, text: KnownText, setting: Setting, name: str) -> None:
        self.times: list[float] = []
        self.rounds: list[tuple[float, float]] = []  # sent, answered
        self.text, self._world, self._setting = text, world, setting
        self.session = _session(name, text)

    def start(self) -> None:
        self._submit(len(self.text.prompt), [], self._go_on)

    def _submit(self, position: int, drafts: list[int], then: Callable[[Answer], None]) -> None:
        sent, world, delay = self._world.now, self._world, self._setting.rtt_ms / 2e3

        def done(result: Answer | SpecPairError) -> None:
            if isinstance(result, SpecPairError):
                raise result
            world.at(world.now + delay, lambda: arrive(result))

        def arrive(answer: Answer) -> None:
            if drafts:
                self.rounds.append((sent, world.now))
            then(answer)

        request = Request(self.session, position, drafts, done)
        world.at(sent + delay, lambda: world.scheduler.submit(request, world.now))

    def _answered(self, answer: Answer) -> None:
        self.times += [self._world.now] * len(answer.tokens)
        self._go_on(answer)

    def _go_on(self, answer: Answer) -> None:
        now, setting = self._world.now, self._setting
        drafts = self.text.draft(answer.total_tokens, setting.k)
        drafted = now + setting.k * setting.drafter.decode_ms / 1e3
        self._world.at(drafted, lambda: self._submit(answer.total_tokens, drafts, self._answered))


class TargetAlone:
    """A client that drafts nothing: the server decodes its text to the end."""

    def __init__(self, world: World, text: KnownText, setting: Setting, name: str) -> None:
        self.times: list[float] = []
        self.text, self._world, self._setting = text, world, setting
        self.session = _session(name, text)

    def start(self) -> None:
        request = Request(self.session, self.session.prompt_len, [], self._done, until_end=True)
        self._later(lambda: self._world.scheduler.submit(request, self._world.now))

    def _done(self, result: Answer | SpecPairError) -> None:
        if isinstance(result, SpecPairError):
            raise result
        if result.position > self.session.prompt_len:
            self._later(lambda: self.times.extend([self._world.now] * len(result.tokens)))

    def _later(self, do: Callable[[], None]) -> None:
        self._world.at(self._world.now + self._setting.rtt_ms / 2e3, do)


class Ours(VirtualDrafter):
    """A drafter with all mechanisms on."""

    def __init__(self, world: World, text: KnownText, setting: Setting, name: str) -> None:
        super().__init__(
            world,
            text.prompt,
            GREEDY,
            Knowing(text, _BRANCHES),
            lambda texts: pass_ms(setting.drafter, texts, 1),
            max_tokens=_CONTEXT,
            network=Network(setting.rtt_ms / 1e3),
            pass_ms=_known(setting.target),
            name=name,
        )
        self.text = text

    @property
    def times(self) -> list[float]:
        return self.course.times


class OneByOne(Composer):
    """Puts a single session into each pass: the one that has waited longest."""

    def compose(self, waiting: list[SequenceState], going_on: list[SequenceState]) -> BatchPlan:
        return super().compose(waiting[:1], [] if waiting else going_on[:1])


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of clients at a kind of verifier."""

    client: Callable[[World, KnownText, Setting, str], Client]
    one_by_one: bool = False


FORMS = {
    "ours": Form(Ours),
    "k=4": Form(Replayed),
    "target": Form(TargetAlone),
    "ours, one by one": Form(Ours, one_by_one=True),
    "k=4, one by one": Form(Replayed, one_by_one=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rates and gaps, and what the verifier did meanwhile."""

    metrics: Metrics
    parts: list[TextRange]  # of the texts, that were written meanwhile
    sessions: float  # sessions in a pass, on average
    busy: float  # share of the time that passes took


def measure(form: Form, clients: int, setting: Setting) -> Outcome:
    """So many clients of this form. Raises RuntimeError where one writes another text than the target's."""
    world, meter = virtual_world(setting, clients, one_by_one=form.one_by_one)
    crowd = [form.client(world, KnownText(number), setting, f"session-{number}") for number in range(clients)]
    start_all(world, crowd)
    world.run(until=setting.warm_up)
    before, known = len(meter.passes), [len(each.times) for each in crowd]
    world.run(until=setting.warm_up + setting.seconds)
    passes = meter.passes[before:]
    for client in crowd:
        if client.session.tokens != client.text.tokens(0, len(client.session.tokens)):
            raise RuntimeError(f"the text of {client.session.id} is not the target's")
    return Outcome(
        Metrics.of([each.times for each in crowd], setting.warm_up, setting.warm_up + setting.seconds),
        [
            (each.text, len(each.text.prompt) + 1 + start, len(each.text.prompt) + 1 + len(each.times))
            for each, start in zip(crowd, known, strict=True)
        ],
        sum(sessions for sessions, _ in passes) / len(passes),
        sum(seconds for _, seconds in passes) / setting.seconds,
    )


def carried(form: Form, rate: float, setting: Setting, most: int) -> int:
    """How many clients get `rate` tokens per second each, on average; found by bisection, up to `most`."""
    least, beyond = 0, most + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        if measure(form, middle, setting).metrics.each >= rate:
            least = middle
        else:
            beyond = middle
    return least


@dataclass(frozen=True, slots=True)
class Intrusion:
    """What a long prompt adds to the rounds of others, each compared with the same round without it. Milliseconds."""

    rounds: int  # that were under way between its arrival and its first token
    median: float
    p95: float
    most: float
    usual: float  # a round without it, median
    prefill: float  # from its arrival to its first token


def intrude(clients: int, tokens: int, setting: Setting, chunk: int) -> Intrusion:
    """A prompt of so many tokens among clients in lockstep. Their rounds are the same ones, judged alike, in both."""
    without, _ = _intruded(clients, 0, setting, chunk)
    rounds, (began, ended) = _intruded(clients, tokens, setting, chunk)
    extra, usual = [], []
    for mine, others in zip(rounds, without, strict=True):
        for (sent, answered), (sent_then, answered_then) in zip(mine, others, strict=False):
            usual.append(1e3 * (answered_then - sent_then))
            if answered > began and sent < ended:
                extra.append(1e3 * (answered - sent) - usual[-1])
    return Intrusion(
        len(extra),
        percentile(extra, 0.5),
        percentile(extra, 0.95),
        max(extra),
        percentile(usual, 0.5),
        1e3 * (ended - began),
    )


Rounds = list[list[tuple[float, float]]]


def _intruded(clients: int, tokens: int, setting: Setting, chunk: int) -> tuple[Rounds, tuple[float, float]]:
    """The rounds of all clients, and when a prompt of so many tokens (0: none) came and was read."""
    world, _ = virtual_world(setting, clients + 1, chunk=chunk)
    crowd = [Replayed(world, KnownText(number), setting, f"session-{number}") for number in range(clients)]
    start_all(world, crowd)
    read: list[float] = []

    def enter() -> None:
        rng = random.Random(tokens)
        session = Session(
            "long", [rng.randrange(256) for _ in range(tokens)], tokens, GREEDY, Strategy.COUPLED, _CONTEXT
        )
        world.scheduler.submit(Request(session, tokens, [], lambda _: read.append(world.now)), world.now)

    if tokens:
        world.at(setting.warm_up, enter)
    world.run(until=setting.warm_up + setting.seconds)
    if tokens and not read:
        raise RuntimeError("the prompt was not read while it was watched: watch for longer")
    return [each.rounds for each in crowd], (setting.warm_up, read[0] if read else setting.warm_up)


def virtual_world(setting: Setting, clients: int, *, one_by_one: bool = False, chunk: int = 128) -> tuple[World, Meter]:
    meter, backend = Meter(setting.target), Target(slots=clients, context_length=_CONTEXT)
    batching_window = 0.0 if one_by_one else LONGEST
    world = World(backend, meter, pass_ms=_known(setting.target), prefill_chunk=chunk, batching_window=batching_window)
    if one_by_one:
        scheduler = world.scheduler
        scheduler._composer = OneByOne(backend, scheduler._slots, scheduler._queue, chunk, scheduler.max_drafts, 1.0)
    return world, meter


def start_all(world: World, crowd: Iterable[Starting]) -> None:
    rng = random.Random(0)
    for client in crowd:
        world.at(rng.uniform(0.0, _WITHIN), client.start)


def _known(target: Cost) -> list[float]:
    """What a verifier says that its passes take."""
    return [pass_ms(target, 1, tokens) for tokens in range(1, MAX_AUTO + 2)]


def _session(name: str, text: KnownText) -> Session:
    return Session(name, list(text.prompt), len(text.prompt), GREEDY, Strategy.COUPLED, _CONTEXT)
