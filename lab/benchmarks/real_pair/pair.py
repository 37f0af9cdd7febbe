"""One recorded text written again in virtual time, by the real scheduler and the real controller or the real rounds.

The verifier's engine gives the recorded tokens, the drafter what the real draft model chooses. Passes take as long as
those of the stated machines, messages as long as the stated link. Ids are numbered anew for each text, so that rows of
logits are short.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, Self

import numpy as np

from backends.scripted import BEGIN, END, Script, ScriptedBackend
from lab.benchmarks.real_pair.recording import RecordedText, TextChoices
from lab.simulator.costs.catalogue import hardware, model, roofline
from lab.simulator.costs.cost import PassCost
from lab.simulator.costs.roofline import Roofline
from lab.simulator.virtual.draft_engine import DraftEngine
from lab.simulator.virtual.drafter import Course, VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.rounds import VirtualMember, VirtualRounds
from lab.simulator.virtual.world import EventLoop, SharedDevice, Verifier, World
from specpair.drafters.base import Expansion
from specpair.engines.backend import Logits
from specpair.speculation.draft import Draft
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.experience import Experience
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.composer import BatchPlan
from verifier_server.sessions import Session


class Machine(NamedTuple):
    """A model on a device. `weights`: the number type."""

    model: str
    device: str
    weights: str = "bf16"

    @property
    def cost(self) -> Roofline:
        return _cost(self)


class Setting(NamedTuple):
    """A verifier's machine, a drafter's, and the link between them. Times in seconds."""

    target: Machine
    drafter: Machine
    rtt: float
    overhead: float

    @property
    def pass_times(self) -> list[float]:
        """Seconds of the target's passes over 1, 2, … tokens behind a short text, as timed at a verifier's start."""
        return [self.target.cost.seconds([(width, 0)]) for width in range(1, MAX_AUTO + 2)]

    @property
    def same_box(self) -> PassCost:
        """The draft model on one of the target's devices, in the target's number type."""
        return _alone(self.drafter.model, self.target)


def plan_seconds(cost: PassCost, plan: BatchPlan) -> float:
    """Seconds of a pass that a verifier has planned."""
    return cost.seconds([(len(entry.tokens), entry.start) for entry in plan.batch])


TARGETS = {
    "8B on H100": Machine("llama-3.1-8b", "h100-sxm"),
    "8B on DGX Spark": Machine("llama-3.1-8b", "dgx-spark", "q8_0"),
    "32B on Trainium2": Machine("qwen3-32b", "half-trn2.48xlarge"),  # 8 chips: 32 of its cores, as Neuron counts them
    "70B on 2 H100": Machine("llama-3.1-70b", "h100-sxm-x2", "fp8"),
}
DRAFTERS = {
    "M4": Machine("qwen2.5-0.5b", "m4", "q4_k_m"),
    "RTX 4070": Machine("qwen2.5-0.5b", "rtx-4070", "q4_k_m"),
}
LINKS = (0.0004, 0.02, 0.06, 0.15)  # round trips in seconds: a cable, a city, a country, an ocean


@cache
def _cost(machine: Machine) -> Roofline:
    return roofline(machine.model, machine.device, weights=machine.weights)


@cache
def _alone(name: str, machine: Machine) -> Roofline:
    return Roofline(model(name), hardware(machine.device).device, weights=machine.weights)


_CONTEXT = 4096  # tokens of a text, at most
_IDS = 8192  # ids of a text and of all that was drafted for it: more than ever came up
_JUNK = 0  # what the target would write where a draft token was wrong: it is never asked
_BRANCHES = 6
GREEDY = Sampling()  # the tokens are known: where they were drawn, the noise was in the choice


@dataclass
class Numbering:
    """Short ids for the tokens of one text. All end tokens share one id."""

    ends: frozenset[int]
    short: dict[int, int] = field(default_factory=dict)
    long: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.long = {END: min(self.ends)}

    def of(self, token: int) -> int:
        if token in self.ends:
            return END
        if token not in self.short:
            number = len(self.short) + 1  # 0 is junk
            number += 2 * (number >= BEGIN)
            assert number < _IDS, "more tokens than short ids"
            self.short[token], self.long[number] = number, token
        return self.short[token]


class RecordedTarget(ScriptedBackend):
    """An engine that gives the tokens of a recorded text."""

    def __init__(self, text: list[int]) -> None:
        """`text`: its tokens in short ids, the prompt's included."""
        super().__init__(Script(vocabulary_size=_IDS), slots=2, context_length=_CONTEXT, max_batch_tokens=512)
        self.text = text

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        length = len(tokens)
        right = length < len(self.text) and list(tokens) == self.text[:length]
        row = np.zeros(_IDS, np.float32)
        row[self.text[length] if right else _JUNK] = 1.0
        return row


class RecordedDrafter:
    """A drafter that proposes what the real draft model chooses."""

    width = _BRANCHES

    def __init__(self, choices: TextChoices, numbering: Numbering) -> None:
        self._choices, self._numbering = choices, numbering

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([self._proposal(len(text), tail, runners_up) for tail in tails], len(tails))

    def _proposal(self, length: int, tail: Sequence[int], runners_up: int) -> Proposal:
        ids, probabilities = self._choices.after(length, [self._numbering.long[each] for each in tail])
        found: dict[int, float] = {}  # all ends are one
        for each, probability in zip(ids[: 1 + runners_up], probabilities, strict=False):
            found.setdefault(self._numbering.of(each), probability)
        return Proposal.of([*found], [*found.values()])


def write(
    text: RecordedText,
    choices: TextChoices,
    setting: Setting,
    ends: frozenset[int],
    experience: Experience,
    **options: object,
) -> Course:
    """Write the text again on the machines of `setting`. `options`: further arguments of `VirtualDrafter`."""
    known, drafter = _Numbered.of(text, ends), setting.drafter.cost

    def draft_time(branches: int) -> float:
        return drafter.seconds([(1, len(known.tokens))] * branches)

    world = World(known.target, partial(plan_seconds, setting.target.cost))
    with experience.text(TextSpec.of(text.sampling), setting.pass_times) as estimates:
        client = VirtualDrafter(
            world,
            known.prompt,
            GREEDY,
            RecordedDrafter(choices, known.numbering),
            draft_time,
            max_tokens=len(text.tokens),
            network=Network(setting.rtt),
            overhead=setting.overhead,
            lookup=True,
            estimates=estimates,
            **options,  # type: ignore[arg-type]
        )
        client.start()
        world.run(done=lambda: client.finished)
    assert client.session.tokens == known.tokens, "it wrote another text"
    return client.course


def write_on_server(
    text: RecordedText, choices: TextChoices, setting: Setting, ends: frozenset[int], experience: Experience
) -> list[float]:
    """Write the text again by server-side drafting, with the shipped rounds.

    Returns when each token behind the first was known, in seconds from the first on.
    """
    known, loop = _Numbered.of(text, ends), EventLoop()
    run = SharedDevice(loop).run  # passes of the two models take turns
    takes, pass_times = partial(plan_seconds, setting.target.cost), setting.pass_times
    verifier = Verifier(loop, known.target, takes, pass_times=pass_times, run=run)
    engine = DraftEngine(loop, setting.same_box, run=run)
    rounds = VirtualRounds(loop, verifier, engine, pass_times, overlaps=False)
    prompt, whole, times = len(known.prompt), len(known.tokens), list[float]()
    session = Session("text", known.prompt, prompt, TextSpec.of(GREEDY), whole, known.target.vocabulary.ends)

    def answered(answer: Answer, _draft: Draft) -> None:
        times.extend([loop.now] * len(answer.tokens))

    with experience.text(TextSpec.of(text.sampling), pass_times, together=True) as estimates:
        rounds.write(
            VirtualMember(
                session,
                prompt,
                RecordedDrafter(choices, known.numbering),
                estimates.acceptance,
                answered,
                held=prompt,
                lookups=Lookups(prompt, in_text=True),
            )
        )
        loop.run(done=lambda: session.finish_reason is not None)
    assert session.tokens == known.tokens, "it wrote another text"
    return [each - times[0] for each in times[1:]]


class _Numbered(NamedTuple):
    """A text in short ids, with the engine that gives it."""

    numbering: Numbering
    prompt: list[int]
    tokens: list[int]  # the prompt's included
    target: RecordedTarget

    @classmethod
    def of(cls, text: RecordedText, ends: frozenset[int]) -> Self:
        numbering = Numbering(ends)
        prompt = [numbering.of(each) for each in text.prompt]
        tokens = [*prompt, *(numbering.of(each) for each in text.tokens)]
        return cls(numbering, prompt, tokens, RecordedTarget(tokens))
