"""The keys of `workload`: what users ask for, and when."""

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lab.simulator.configuration.keys import (
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
from lab.simulator.configuration.operation import Slo
from lab.simulator.workload import arrivals
from lab.simulator.workload.conversation import Workload
from lab.simulator.workload.replayed import RecordedConversations, Replayed, recorded
from lab.simulator.workload.synthetic import Closed, Open
from lab.simulator.workload.tenants import Independent, Lengths, Recorded
from lab.simulator.workload.tenants import Tenant as DrawnTenant

MS = 1e-3
_LENGTHS = ("prompt_tokens", "output_tokens", "lengths_path")


class Texts(Keys):
    """How long requests, answers and pauses are."""

    prompt_tokens: Number | None = None
    """new tokens of a turn's prompt"""
    output_tokens: Number | None = None
    """tokens of an answer"""
    lengths_path: File | None = None
    """a trace whose pairs of prompt and answer are drawn, in place of the two keys above"""
    turns: Number = constant(1)
    """turns of a conversation"""
    think_ms: Number = constant(0)
    """from an answer to the next turn"""
    shared_prefix_tokens: Annotated[int, Field(ge=0)] = 0
    """a system prompt that all of the tenant's conversations begin with, before `prompt_tokens`"""


class Tenant(Texts):
    """Users with the same habits. Keys that are left out are those of `workload`."""

    name: Name
    """tells it from the others"""
    share: Positive = 1.0
    """of conversations, in relation to other tenants"""
    slo: Slo | None = None
    """what its users are promised, in place of the `slo` of the file"""

    def built(self) -> DrawnTenant:
        return DrawnTenant(
            self._lengths(),
            self.name,
            self.share,
            self.turns.built(1.0),
            self.think_ms.built(MS),
            self.shared_prefix_tokens,
        )

    def _lengths(self) -> Lengths:
        if self.lengths_path is not None:
            return Recorded([(each.input_tokens, each.output_tokens) for each in recorded(self.lengths_path)])
        assert self.prompt_tokens is not None and self.output_tokens is not None, "checked when the file was read"
        return Independent(self.prompt_tokens.built(1.0), self.output_tokens.built(1.0))


class _Drawn(Texts):
    tenants: list[Tenant] = Field(default_factory=list)
    """groups of users with their own shares and lengths; none: all users are alike"""

    @model_validator(mode="after")
    def _is_complete(self) -> "_Drawn":
        names = [each.name for each in self.tenants]
        if (again := repeated(names)) is not None:
            raise Mistake(f"two tenants are called {names[again]!r}", "tenants", again)
        for number, each in enumerate(self.all_tenants()):
            given = [name for name in _LENGTHS if getattr(each, name) is not None]
            if given not in (["prompt_tokens", "output_tokens"], ["lengths_path"]):
                whose = f"the tenant {each.name!r}" if self.tenants else "the workload"
                has = " and ".join(given) or "no lengths"
                told = f"{whose} has {has}: give prompt_tokens and output_tokens, or lengths_path"
                raise Mistake(told, *(("tenants", number) if self.tenants else given[:1]))
        return self

    def all_tenants(self) -> list[Tenant]:
        """The tenants, with what each has of the workload's keys."""
        mine = {name: getattr(self, name) for name in Texts.model_fields if name in self.model_fields_set}
        if not self.tenants:
            return [Tenant.model_construct(name="all", **mine)]
        return [each.model_copy(update=_left_out(each, mine)) for each in self.tenants]


def _left_out(tenant: Tenant, mine: dict[str, Any]) -> dict[str, Any]:
    """Of the workload's keys, those that the tenant leaves out. One form of lengths replaces the other."""
    own = tenant.model_fields_set
    replaced = {"prompt_tokens", "output_tokens"} if "lengths_path" in own else set()
    if own & {"prompt_tokens", "output_tokens"}:
        replaced = {"lengths_path"}
    return {name: value for name, value in mine.items() if name not in own | replaced}


class _Open(_Drawn):
    def built(self) -> Workload:
        """Raises BadTrace for a file of lengths that is no trace."""
        return Open(self._arrivals(), [each.built() for each in self.all_tenants()])

    @abstractmethod
    def _arrivals(self) -> arrivals.Arrivals: ...


class PoissonArrivals(_Open):
    """Conversations begin independently of each other."""

    arrival: Literal["poisson"]
    rate_rps: Positive
    """conversations a second, on average"""

    def _arrivals(self) -> arrivals.Arrivals:
        return arrivals.Poisson(self.rate_rps)


class DeterministicArrivals(_Open):
    """Conversations begin in equal distances."""

    arrival: Literal["deterministic"]
    rate_rps: Positive
    """conversations a second"""

    def _arrivals(self) -> arrivals.Arrivals:
        return arrivals.Deterministic(self.rate_rps)


class GammaArrivals(_Open):
    """Conversations begin in bursts, or more evenly than at random."""

    arrival: Literal["gamma"]
    rate_rps: Positive
    """conversations a second, on average"""
    cv: Positive
    """standard deviation of the gaps over their mean: 1 is Poisson, above 1 are bursts"""

    def _arrivals(self) -> arrivals.Arrivals:
        return arrivals.Gamma(self.rate_rps, self.cv)


class OnOffArrivals(_Open):
    """Conversations begin independently of each other for a while, then none does."""

    arrival: Literal["on_off"]
    rate_rps: Positive
    """conversations a second, while it is on"""
    on_ms: Number
    """how long it is on"""
    off_ms: Number
    """how long it is off"""

    def _arrivals(self) -> arrivals.Arrivals:
        return arrivals.OnOff(self.rate_rps, self.on_ms.built(MS), self.off_ms.built(MS))


class ClosedArrivals(_Drawn):
    """A number of users, each with one conversation after the other."""

    arrival: Literal["closed"]
    users: Count
    """how many"""
    pause_ms: Number = constant(0)
    """before each of a user's conversations, the first one, too"""
    ramp_ms: NonNegative = 0.0
    """in which the users begin, one after the other in equal distances; 0: all at once"""

    def built(self) -> Closed:
        tenants = [each.built() for each in self.all_tenants()]
        return Closed(self.users, tenants, self.pause_ms.built(MS), self.ramp_ms * MS)


class TraceArrivals(Keys):
    """Requests of a recorded trace, each a conversation of one turn."""

    arrival: Literal["trace"]
    trace_path: File
    """the file, in one of the forms of `drafter bench`"""
    speed: Positive = 1.0
    """how many times faster than recorded"""
    repeat: bool = False
    """whether it begins anew behind its end"""

    def built(self) -> Workload:
        return Replayed(self.trace_path, self.speed, self.repeat)


class ConversationArrivals(Keys):
    """Conversations as they were written down, one a line."""

    arrival: Literal["conversations"]
    conversations_path: File
    """JSON Lines: `name`, `start` (s), `turns` (`prompt_tokens`, `output_tokens`, `think` in s), `tenant`, `prefix`"""

    def built(self) -> Workload:
        return RecordedConversations(self.conversations_path)


WorkloadKeys = Annotated[
    PoissonArrivals
    | DeterministicArrivals
    | GammaArrivals
    | OnOffArrivals
    | ClosedArrivals
    | TraceArrivals
    | ConversationArrivals,
    Field(discriminator="arrival"),
]
