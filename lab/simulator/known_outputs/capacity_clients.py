"""The clients whose capacity `lab.simulator.known_outputs.capacity` measures, and the setting in which they run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from backends.scripted import END
from lab.simulator.costs.linear import LinearCost
from lab.simulator.known_outputs.capacity_model import Knowing, KnownOutput, pass_time
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World, or_raise
from specpair.speculation.draft import Draft
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

CONTEXT = 4096  # tokens
_BRANCHES = 6  # most branches that a drafter expands in one draft step
GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Setting:
    """Costs of both models, the link, the draft length of lockstep clients, and how long is measured."""

    target: LinearCost
    drafter: LinearCost
    rtt: float = 0.005  # seconds
    k: int = 4  # draft tokens of a client in lockstep
    warm_up: float = 2.0  # seconds before the measurement
    seconds: float = 6.0  # seconds of the measurement

    @property
    def thinking(self) -> float:
        """Seconds of a client in lockstep from a response's departure to the arrival of its next request."""
        return self.rtt + self.k * pass_time(self.drafter, 1, 1)


class Starting(Protocol):
    """A client, or a sender of other requests, that begins when it is started."""

    def start(self) -> None:
        """Send the first request."""


class Client(Starting, Protocol):
    """A client that writes one text."""

    text: KnownOutput
    session: Session

    @property
    def times(self) -> list[float]:
        """When the client learnt each token behind the first, in seconds."""


class Replayed:
    """A client in lockstep whose drafts are `KnownOutput.draft`; drafting takes the time of the draft steps."""

    def __init__(self, world: World, text: KnownOutput, setting: Setting, name: str) -> None:
        self.times: list[float] = []
        self.rounds: list[tuple[float, float]] = []  # when each request was sent and its response came, in seconds
        self.text, self._world, self._setting = text, world, setting
        self.session = session_of(name, text)

    def start(self) -> None:
        self._submit(len(self.text.prompt), [], self._draft)

    def _submit(self, position: int, drafts: list[int], then: Callable[[Answer], None]) -> None:
        sent, world, delay = self._world.now, self._world, self._setting.rtt / 2

        def arrive(answer: Answer) -> None:
            if drafts:
                self.rounds.append((sent, world.now))
            then(answer)

        done = or_raise(lambda answer: world.at(world.now + delay, lambda: arrive(answer)))
        request = Request(self.session, Draft.chain(position, drafts), done)
        world.at(sent + delay, lambda: world.scheduler.submit(request, world.now))

    def _answered(self, answer: Answer) -> None:
        self.times += [self._world.now] * len(answer.tokens)
        self._draft(answer)

    def _draft(self, answer: Answer) -> None:
        now, setting = self._world.now, self._setting
        drafts = self.text.draft(answer.total_tokens, setting.k)
        drafted = now + setting.k * pass_time(setting.drafter, 1, 1)
        self._world.at(drafted, lambda: self._submit(answer.total_tokens, drafts, self._answered))


class TargetAlone:
    """A client that drafts nothing: the server decodes its text to the end."""

    def __init__(self, world: World, text: KnownOutput, setting: Setting, name: str) -> None:
        self.times: list[float] = []
        self.text, self._world, self._setting = text, world, setting
        self.session = session_of(name, text)

    def start(self) -> None:
        request = Request(self.session, Draft(self.session.prompt_len), or_raise(self._answered), until_end=True)
        self._later(lambda: self._world.scheduler.submit(request, self._world.now))

    def _answered(self, answer: Answer) -> None:
        if answer.position > self.session.prompt_len:
            self._later(lambda: self.times.extend([self._world.now] * len(answer.tokens)))

    def _later(self, do: Callable[[], None]) -> None:
        self._world.at(self._world.now + self._setting.rtt / 2, do)


class Ours(VirtualDrafter):
    """A drafter with all mechanisms on."""

    def __init__(self, world: World, text: KnownOutput, setting: Setting, name: str) -> None:
        super().__init__(
            world,
            text.prompt,
            GREEDY,
            Knowing(text, _BRANCHES),
            lambda texts: pass_time(setting.drafter, texts, 1),
            max_tokens=CONTEXT,
            network=Network(setting.rtt),
            pass_times=known_pass_times(setting.target),
            name=name,
        )
        self.text = text

    @property
    def times(self) -> list[float]:
        return self.course.times


def known_pass_times(target: LinearCost) -> list[float]:
    """Seconds of a verifier pass over 1, 2, … tokens, as the verifier reports them."""
    return [pass_time(target, 1, tokens) for tokens in range(1, MAX_AUTO + 2)]


def session_of(name: str, text: KnownOutput) -> Session:
    """A greedy session of a text."""
    return Session(name, list(text.prompt), len(text.prompt), TextSpec.of(GREEDY), CONTEXT, {END})
