"""A client beside another one on one verifier, in virtual time: the scheduler is real, the rest is modelled.

The texts, the link and the costs are those of `lab.simulator.known_outputs.capacity`. The neighbour is a client of one
of its forms, and its rate is measured. Beside it is one of

    plain       asks for one token after another, each as soon as the last one is known; never sends a draft
    plain, new  the same with a new session, and so a prompt, for every token
    junk        sends 64 random draft tokens with each request
    junk, 16    the same with 16 requests under way at all times
    junk, new   the same as junk with a new session for every request, all of one client
    honest      another client of the neighbour's form

The messages of all but the last take no time, so that they are as fast as a client can be.
"""

import random

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

_TEXT = 4096  # most tokens of a sender's text
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


def rate(form: str, beside: str, setting: Setting) -> float:
    """Tokens per second of a neighbour of `form` (in `FORMS`), with one of the above beside it.

    Its text is the target's.
    """
    world, _ = virtual_world(setting, 2)
    neighbour = FORMS[form].client(world, KnownOutput(0), setting, "neighbour")
    other: Client | Sender = (
        FORMS[form].client(world, KnownOutput(1), setting, "honest")
        if beside == "honest"
        else Sender(world, *_SENDERS[beside])
    )
    start_all(world, [neighbour, other])
    world.run(until=setting.warm_up)
    before = len(neighbour.times)
    world.run(until=setting.warm_up + setting.seconds)
    assert neighbour.session.tokens == neighbour.text.tokens(0, len(neighbour.session.tokens))
    return (len(neighbour.times) - before) / setting.seconds
