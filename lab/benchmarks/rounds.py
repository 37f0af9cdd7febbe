"""Server-side drafting for several texts at once, in virtual time: tokens per second as a multiple of the target alone.

Method. The rounds and the scheduler are those that ship; passes take what a stated machine's would, and the time of the
programs themselves is left out. As many clients as `--at-once` says have one text after the other written, of a prompt
of 20 tokens and `--tokens` tokens, until one of them has no further text; all tokens by then, over the time. The draft
model's first choice is the target's with the chance `--agreement`, at every place alike. So no draft token can be told
to be better than another, and what is known of earlier texts is all there is. The machines, with the milliseconds of a
step of either model, and how much longer passes over several tokens take:

* `cores`: a target of 140 ms and a draft model of 18 ms on cores of their own, with the times of passes that
  `lab.benchmarks.verify_curve` measured (`lab.benchmarks.real_pair.machines.HERE`).
* `devices`: 80 ms and 8 ms on devices of their own; a further token takes 2.8 and 16 % of a step (the costs of
  `lab.simulator.paced.engine`), beyond 16 tokens of the draft model 5 %.
* `one`: 25 ms and 4 ms on one device, which both share evenly while both run; a further token takes 2 and 15 %, beyond
  16 tokens of the draft model 5 %.

    python -m lab.benchmarks.rounds [--at-once 1 2 4 8] [--agreement 0.85 0.7 0.5 0.3] [--texts 16] [--tokens 128]
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair.machines import HERE, pass_times, plan_seconds
from lab.simulator.costs.cost import PassCost, SequencePass
from lab.simulator.costs.curve import Curve, Points
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.drafting.rounds import VirtualMember, VirtualRounds
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.shared_device import SharedDevice
from lab.simulator.virtual.world import EventLoop, Verifier, or_raise
from specpair.speculation.draft import Draft
from specpair.speculation.policy.experience import Experience
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

PROMPT = 20  # tokens
SPEC = TextSpec.of(Sampling())


class Steps(NamedTuple):
    """Passes of a model: milliseconds of a step, and how many steps they take by tokens."""

    ms: float
    points: Points

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        return self.ms / 1e3 * Curve(self.points).at(sum(new for new, _ in sequences))


class Machine(NamedTuple):
    target: PassCost
    draft: PassCost
    shared: bool = False  # whether both models run on one device


MACHINES = {
    "cores": Machine(HERE.target.cost, HERE.drafter.cost),
    "devices": Machine(Steps(80.0, {1: 1.0, 2: 1.028}), Steps(8.0, {1: 1.0, 16: 3.4, 512: 28.0})),
    "one": Machine(Steps(25.0, {1: 1.0, 2: 1.02}), Steps(4.0, {1: 1.0, 16: 3.25, 512: 28.0}), shared=True),
}
FLAGS = {
    **{"tokens": 128, "texts": 16},
    "at-once": {"default": [1, 2, 4, 8], "help": "texts at once (default: 1 2 4 8)"},
    "agreement": {"default": [0.85, 0.7, 0.5, 0.3], "help": "chances of a draft token (default: 0.85 0.7 0.5 0.3)"},
}


class Server:
    """A server with as many texts at once as it has slots, one after the other."""

    def __init__(self, machine: Machine, slots: int, texts: int, tokens: int) -> None:
        """`texts`: in all."""
        self._loop, self._tokens, self._texts = EventLoop(), tokens, iter(range(texts))
        self._written = 0
        self.rate = 0.0  # tokens per second, as long as all slots were busy
        self._run = SharedDevice(self._loop).run if machine.shared else None
        self._pass_times = pass_times(machine.target)
        self._machine, self._slots = machine, slots
        self._verifier = Verifier(
            self._loop,
            RuleTarget(slots=slots, context_length=PROMPT + tokens + 1, max_batch_tokens=512),
            self._takes,
            pass_times=self._pass_times,
            run=self._run,
        )

    def _takes(self, plan: BatchPlan) -> float:
        return plan_seconds(self._machine.target, plan)

    def alone(self) -> float:
        """Tokens per second of the target alone."""

        def begin() -> None:
            if (text := self._next()) is not None:
                session = self._session(text)

                def answered(answer: Answer) -> None:
                    self._written += len(answer.tokens)
                    if answer.finish_reason is not None:
                        self._verifier.scheduler.forget(session)
                        begin()

                request = Request(session, Draft(PROMPT), or_raise(answered), until_end=True)
                self._verifier.scheduler.submit(request, self._loop.now)
                self._loop.at(self._loop.now, self._verifier.look)

        return self._all(begin)

    def drafting(self, agreement: float) -> float:
        """Tokens per second with server-side drafting."""
        engine = DraftEngine(self._loop, self._machine.draft, self._slots, run=self._run)
        overlaps = not self._machine.shared
        rounds = VirtualRounds(self._loop, self._verifier, engine, self._pass_times, overlaps=overlaps)
        experience = Experience()

        def begin() -> None:
            if (text := self._next()) is None:
                return
            session, learnt = self._session(text), experience.text(SPEC, together=True)
            estimates = learnt.__enter__()

            def answered(answer: Answer, draft: Draft) -> None:
                self._written += len(answer.tokens)
                if answer.finish_reason is not None:
                    learnt.__exit__(None, None, None)
                    self._verifier.scheduler.forget(session)
                    begin()

            drafter = Agreeing(Choices(text, constant(agreement)))
            rounds.write(VirtualMember(session, PROMPT, drafter, estimates.acceptance, answered, held=PROMPT))

        return self._all(begin)

    def _all(self, begin: Callable[[], None]) -> float:
        for _ in range(self._slots):
            begin()
        self._loop.run(done=lambda: self.rate > 0.0)
        return self.rate

    def _next(self) -> Text | None:
        number = next(self._texts, None)
        if number is None:
            self.rate = self._written / self._loop.now
            return None
        prompt = random.Random(number)

        def stream(name: str) -> random.Random:
            return random.Random(f"{number} {name}")

        return Text([prompt.randrange(256) for _ in range(PROMPT)], stream)

    def _session(self, text: Text) -> Session:
        ends = self._verifier.backend.vocabulary.ends
        return Session(str(id(text)), text.tokens(0, PROMPT), PROMPT, SPEC, PROMPT + self._tokens, ends)


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("rounds", options)
    for name, machine in MACHINES.items():
        for agreement in options.agreement:
            times = []
            for at_once in options.at_once:
                texts = max(options.texts, 3 * at_once)
                alone = Server(machine, at_once, texts, options.tokens).alone()
                times.append(Server(machine, at_once, texts, options.tokens).drafting(agreement) / alone)
            found = ", ".join(f"{each:.2f}" for each in times)
            report.line(f"{name:>8}, agreement {agreement:.2f}: {found} times the target alone")
    report.save()


if __name__ == "__main__":
    main()
