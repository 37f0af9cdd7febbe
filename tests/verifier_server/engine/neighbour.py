"""A client beside another one on one verifier, in virtual time: the scheduler is real, the rest is modelled.

The neighbour is a drafter as it ships, or a text that the target writes alone, and its rate is measured. Beside it is

    plain       asks for one token after another, each as soon as the last one is known; never sends a draft
    plain, new  the same with a new session, and so a prompt, for every token
    junk        sends 64 random draft tokens with each request
    junk, 16    the same with 16 requests under way at all times
    junk, new   the same as junk with a new session for every request, all of one client
    honest      another drafter

The messages of all but the last take no time, so that they are as fast as a client can be.
"""

import random
from dataclasses import replace

from backends.scripted import BEGIN, END, Script, ScriptedBackend
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import DRAFTER_8
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from specpair.drafters.draft_model import ModelDrafter
from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import Draft
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.specpair.speculation.policy.virtual_pair import Toy
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

WARM_UP = 1.0  # seconds before the measurement
_SCRIPT = Script(seed=1, end_bias=-100.0)  # no text ends
_TEXT = 4096  # most tokens of a text
# Of each sender: draft tokens of a request, requests under way at a time, whether each is for a new session.
_SENDERS = {
    "plain": (0, 1, False),
    "plain, new": (0, 1, True),
    "junk": (64, 1, False),
    "junk, 16": (64, 16, False),
    "junk, new": (64, 1, True),
}


class Sender:
    """Sends requests with `drafts` random draft tokens (0: none), `at_once` of them under way at all times.

    `anew`: whether each request is for a new session.
    """

    def __init__(self, world: World, drafts: int, at_once: int, anew: bool) -> None:
        self._world, self._drafts, self._at_once, self._anew = world, drafts, at_once, anew
        self._rng = random.Random(1)
        self._texts = 0
        self._session = self._open()

    def start(self) -> None:
        """Send the first requests."""
        for _ in range(self._at_once):
            self._submit()

    def _open(self) -> Session:
        self._texts += 1
        prompt = [BEGIN, *divmod(1000 + self._texts, 256), 3]
        name = f"sender-{self._texts}"
        return Session(name, prompt, len(prompt), TextSpec(seed=0), _TEXT, {END}, client="sender")

    def _submit(self) -> None:
        session = self._session
        drafts = [self._rng.randrange(256) for _ in range(self._drafts)]
        draft = Draft.chain(len(session.tokens), drafts)
        request = Request(session, draft, lambda answer: self._answered(session, answer))
        self._world.scheduler.submit(request, self._world.now)

    def _answered(self, session: Session, answer: Answer | SpecPairError) -> None:
        if isinstance(answer, SpecPairError):
            raise answer
        if session is self._session and (self._anew or answer.finish_reason is not None):
            self._session = self._open()
            if self._anew:
                self._world.scheduler.forget(session)
        self._world.at(self._world.now, self._submit)


def _drafter(world: World, pass_times: list[float], number: int) -> VirtualDrafter:
    return VirtualDrafter(
        world,
        [BEGIN, 0, number, 3],
        Sampling(),
        ModelDrafter(Toy(replace(_SCRIPT, agreement=0.8), slots=6, context_length=_TEXT), Sampling()),
        lambda branches: DRAFTER_8.seconds([(1, 0)] * branches),
        max_tokens=_TEXT,
        network=Network(0.005),
        pass_times=pass_times,
        name=f"drafter-{number}",
    )


def rate(drafts: bool, beside: str, cost: LinearCost, seconds: float) -> float:
    """Tokens per second of a neighbour, with one of the above beside it.

    `drafts`: whether the neighbour drafts; else the target writes its text alone.
    """
    backend = Toy(_SCRIPT, slots=2, context_length=_TEXT)
    pass_times = [cost.seconds([(tokens, 0)]) for tokens in range(1, MAX_AUTO + 2)]
    world = World(backend, lambda plan: cost.of(plan.batch), pass_times=pass_times)
    if drafts:
        drafter = _drafter(world, pass_times, 0)
        session, start = drafter.session, drafter.start
    else:
        prompt = [BEGIN, 0, 0, 3]
        session = Session("alone", prompt, len(prompt), TextSpec.of(Sampling()), _TEXT, {END})
        request = Request(session, Draft(len(prompt)), lambda _: None, until_end=True)

        def start() -> None:
            world.scheduler.submit(request, world.now)

    other = _drafter(world, pass_times, 1) if beside == "honest" else Sender(world, *_SENDERS[beside])
    world.at(0.0, start)
    world.at(0.1, other.start)
    world.run(until=WARM_UP)
    before = len(session.tokens)
    world.run(until=WARM_UP + seconds)
    target = ScriptedBackend(_SCRIPT)
    assert all(
        session.tokens[at] == target.logits_after(session.tokens[:at]).argmax()
        for at in range(session.prompt_len, len(session.tokens))
    )
    return (len(session.tokens) - before) / seconds
