"""A client beside another one on one verifier, in virtual time: the scheduler is real, the rest is modelled.

The texts, the link and the costs are those of `capacity`. The neighbour is a client of one of its forms, and
its rate is measured. Beside it is one of

    plain       asks for one token after another, each as soon as the last one is known; never sends a draft
    plain, new  the same with a new session, and so a prompt, for every token
    junk        sends 64 random draft tokens with each request
    junk, 16    the same with 16 requests under way at all times
    junk, new   the same as junk with a new session for every request, all of one client
    honest      another client of the neighbour's form

The messages of all but the last take no time, so that they are as fast as a client can be.
"""

import random
from collections.abc import Callable

from backends.scripted import END
from lab.simulator.known_outputs.capacity import FORMS, start_all, virtual_world
from lab.simulator.known_outputs.capacity_clients import Client, Setting
from lab.simulator.known_outputs.capacity_model import KnownOutput
from lab.simulator.virtual.world import World
from specpair.protocol.errors import SpecPairError
from specpair.speculation.draft import Draft
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

DRAFTS = 64  # draft tokens in a request of the junk senders
_MANY = 16  # requests under way at a time
_TEXT = 4096  # most tokens of a sender's text


class Sender:
    """Sends requests with `drafts` random draft tokens (0: none), `at_once` of them under way at all times.

    `anew`: whether each request is for a new session.
    """

    def __init__(self, world: World, drafts: int, at_once: int, anew: bool = False) -> None:
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
        prompt = list(KnownOutput(1000 + self._texts).prompt)
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


def _sender(drafts: int, at_once: int, anew: bool = False) -> Callable[[World, str, Setting], Client | Sender]:
    return lambda world, _form, _setting: Sender(world, drafts, at_once, anew)


def _honest(world: World, form: str, setting: Setting) -> Client | Sender:
    return FORMS[form].client(world, KnownOutput(1), setting, "honest")


BESIDE: dict[str, Callable[[World, str, Setting], Client | Sender]] = {
    "plain": _sender(0, 1),
    "plain, new": _sender(0, 1, anew=True),
    "junk": _sender(DRAFTS, 1),
    "junk, 16": _sender(DRAFTS, _MANY),
    "junk, new": _sender(DRAFTS, 1, anew=True),
    "honest": _honest,
}


def rate(form: str, beside: str, setting: Setting) -> float:
    """Tokens per second of a neighbour of `form` (in `FORMS`), with one of `BESIDE` beside it.

    Raises RuntimeError where the neighbour writes another text than the target's.
    """
    world, _ = virtual_world(setting, 2)
    neighbour = FORMS[form].client(world, KnownOutput(0), setting, "neighbour")
    start_all(world, [neighbour, BESIDE[beside](world, form, setting)])
    world.run(until=setting.warm_up)
    before = len(neighbour.times)
    world.run(until=setting.warm_up + setting.seconds)
    if neighbour.session.tokens != neighbour.text.tokens(0, len(neighbour.session.tokens)):
        raise RuntimeError(f"beside {beside}, the neighbour's text is not the target's")
    return (len(neighbour.times) - before) / setting.seconds
