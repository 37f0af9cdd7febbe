"""The keys of `workload`: the users' requests and their times. Each form of arrival makes its conversations.

All chance is in streams by name: what changes for one tenant leaves the arrivals and the texts of the others alone.
"""

import random
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lab.request_traces import BadTrace, TracedRequest, in_order, requests
from lab.simulator.configuration.keys import (
    MS,
    Count,
    File,
    Keys,
    Mistake,
    Name,
    NonNegative,
    Number,
    Positive,
    constant,
    repeated,
)
from lab.simulator.configuration.operation import SloKeys
from lab.simulator.fleet.record import Conversation, Turn


class Texts(Keys):
    """The lengths of requests, answers and pauses."""

    prompt_tokens: Number | None = None
    """new tokens of a turn's prompt"""
    output_tokens: Number | None = None
    """tokens of an answer"""
    turns: Number = constant(1)
    """turns of a conversation"""
    think_ms: Number = constant(0)
    """from an answer to the next turn"""
    shared_prefix_tokens: Annotated[int, Field(ge=0)] = 0
    """a system prompt that all of the tenant's conversations begin with, before `prompt_tokens`"""


class Tenant(Texts):
    """Users with the same habits. Omitted keys are those of `workload`."""

    name: Name
    """tells it from the others"""
    share: Positive = 1.0
    """of conversations, in relation to other tenants"""
    slo: SloKeys | None = None
    """what its users are promised, in place of the `slo` of the file"""

    def conversations(self, rng: random.Random) -> Iterator[tuple[Turn, ...]]:
        """The turns of one conversation after the other, without end."""
        assert self.prompt_tokens is not None and self.output_tokens is not None, "checked when it was read"
        while True:
            turns = []
            for number in range(self.turns.whole(rng)):
                prompt, output = self.prompt_tokens.whole(rng), self.output_tokens.whole(rng)
                think = self.think_ms.draw(rng) * MS if number else 0.0
                turns.append(Turn(prompt + (0 if number else self.shared_prefix_tokens), output, think))
            yield tuple(turns)


class _DrawnWorkload(Texts):
    tenants: list[Tenant] = Field(default_factory=list)
    """groups of users with their own shares and lengths; none: all users are alike"""

    @model_validator(mode="after")
    def _is_complete(self) -> "_DrawnWorkload":
        names = [each.name for each in self.tenants]
        if (again := repeated(names)) is not None:
            raise Mistake(f"two tenants are called {names[again]!r}", "tenants", again)
        for number, each in enumerate(self.all_tenants()):
            missing = [name for name in ("prompt_tokens", "output_tokens") if getattr(each, name) is None]
            if missing:
                whose = f"the tenant {each.name!r}" if self.tenants else "the workload"
                raise Mistake(
                    f"{whose} has no {' and no '.join(missing)}", *(("tenants", number) if self.tenants else ())
                )
        return self

    def all_tenants(self) -> list[Tenant]:
        """The tenants, each with the workload's keys filled in."""
        mine = {name: getattr(self, name) for name in Texts.model_fields if name in self.model_fields_set}
        if not self.tenants:
            return [Tenant.model_construct(name="all", **mine)]
        return [
            each.model_copy(update={name: value for name, value in mine.items() if name not in each.model_fields_set})
            for each in self.tenants
        ]

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        """The conversations in the order of their starts, without end, made as they are asked for.

        `rng`: all the chance; the same state gives the same conversations.
        """
        seed = rng.getrandbits(64)
        choice, tenants = random.Random(f"{seed}/tenant"), self.all_tenants()
        texts = [each.conversations(random.Random(f"{seed}/texts/{each.name}")) for each in tenants]
        bounds = [*accumulate(each.share for each in tenants)]
        for number, (start, pause) in enumerate(self.starts(random.Random(f"{seed}/arrivals"))):
            [at] = choice.choices(range(len(tenants)), cum_weights=bounds)
            tenant, (first, *others) = tenants[at], next(texts[at])
            turns = (Turn(first.prompt_tokens, first.output_tokens, pause), *others)
            yield Conversation(f"{tenant.name}-{number}", start, turns, tenant.name, tenant.shared_prefix_tokens)

    @abstractmethod
    def starts(self, rng: random.Random) -> Iterable[tuple[float, float]]:
        """The start times of conversations, ascending, and the pause before the first turn of each, in seconds."""


class PoissonArrivals(_DrawnWorkload):
    """Conversations begin independently of each other."""

    arrival: Literal["poisson"]
    rate_rps: Positive
    """conversations a second, on average"""

    def starts(self, rng: random.Random) -> Iterable[tuple[float, float]]:
        return ((at, 0.0) for at in accumulate(rng.expovariate(self.rate_rps) for _ in repeat(None)))


class GammaArrivals(_DrawnWorkload):
    """Conversations begin in bursts, or more evenly than at random."""

    arrival: Literal["gamma"]
    rate_rps: Positive
    """conversations a second, on average"""
    cv: Positive
    """standard deviation of the gaps over their mean: 1 is Poisson, above 1 are bursts"""

    def starts(self, rng: random.Random) -> Iterable[tuple[float, float]]:
        shape = 1.0 / (self.cv * self.cv)
        gaps = (rng.gammavariate(shape, 1.0 / (self.rate_rps * shape)) for _ in repeat(None))
        return ((at, 0.0) for at in accumulate(gaps))


class ClosedArrivals(_DrawnWorkload):
    """A fixed number of users, each with one conversation after the other."""

    arrival: Literal["closed"]
    users: Count
    """how many"""
    pause_ms: Number = constant(0)
    """before each of a user's conversations, the first one, too"""
    ramp_ms: NonNegative = 0.0
    """in which the users begin, one after the other in equal distances; 0: all at once"""

    def starts(self, rng: random.Random) -> Iterable[tuple[float, float]]:
        """The start of each conversation: the fleet begins `users` of them, and another as one ends."""
        begins = (self.ramp_ms * MS * number / self.users for number in range(self.users))
        return ((at, self.pause_ms.draw(rng) * MS) for at in chain(begins, repeat(0.0)))


class TraceArrivals(Keys):
    """Requests of a recorded trace, each a conversation of one turn."""

    arrival: Literal["trace"]
    trace_path: File
    """the file, in one of the forms of `drafter bench`"""
    speed: Positive = 1.0
    """how many times faster than recorded"""
    repeat: bool = False
    """whether it begins anew behind its end"""

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        """The conversations in the order of the trace. Raises BadTrace."""
        number, offset = 0, 0.0
        while True:
            first, last, begun = None, 0.0, number
            for request in _recorded(self.trace_path):
                first = request.seconds if first is None else first
                last = offset + request.seconds - first
                turn = Turn(max(1, request.input_tokens), max(1, request.output_tokens))
                name = f"{request.session or 'request'}-{number}"
                yield Conversation(name, last / self.speed, (turn,), request.tenant)
                number += 1
            gap = (last - offset) / max(1, number - begun - 1)
            offset = last + (gap or 1.0)  # else a trace of one moment would repeat in that moment without end
            if not self.repeat:
                return


def _recorded(path: Path) -> Iterator[TracedRequest]:
    """The requests of a trace by their times. Raises BadTrace."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from in_order(requests(file, str(path)), str(path))
    except OSError as error:
        raise BadTrace(f"the trace {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadTrace(f"the trace {path} is not UTF-8 text") from None


WorkloadKeys = Annotated[
    PoissonArrivals | GammaArrivals | ClosedArrivals | TraceArrivals, Field(discriminator="arrival")
]
