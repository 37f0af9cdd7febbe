"""Clients in virtual time: they send valid, wrong, stale, repeated and cancelled requests to an engine that may fail.

Every text is that of plain decoding, every request is answered, and the scheduler is consistent after each event.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from backends.scripted import Script, ScriptedBackend
from lab.benchmarks.faults.pairs import random_head
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import EngineFailure
from specpair.protocol.errors import EngineError, Overloaded, SpecPairError, TooManyDrafts, UnknownSession
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.engine.bench import plain, random_tree
from tests.verifier_server.engine.virtual import World
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.sessions import Session

SCRIPT = Script(seed=3, support=40, end_bias=5.0)
LENGTH = 60
SYSTEM = list(range(1, 40))
ENDS = 6.0  # seconds after which clients send nothing more
ACTS = ["right", "right", "wrong", "stale", "plain", "double", "too long", "cancel", "rest", "renew"]
ACTS += ["tree", "tree", "stale tree", "repeated"]


@lru_cache(64)
def text_of(prompt: tuple[int, ...], sampling: Sampling) -> list[int]:
    return plain(SCRIPT, prompt, LENGTH, sampling)


class Fragile(ScriptedBackend):
    """Fails 3 % of its passes, and of the steps of its head."""

    chance: random.Random | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.chance is not None and self.chance.random() < 0.03:
            raise EngineFailure("a device went away")
        return super()._forward(batch)

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        if self.chance is not None and self.chance.random() < 0.03:
            raise EngineFailure("the head went away")
        return super()._extend_head(batch)


class Client:
    """A client that sends random requests for one session."""

    def __init__(self, world: World, chance: random.Random, prompt: list[int], sampling: Sampling) -> None:
        self.world, self._chance, self._sampling = world, chance, sampling
        self.prompt, self.text = prompt, text_of(tuple(prompt), sampling)
        self.session = self._open()
        self._known = len(prompt)  # the highest position an answer gave
        self.waiting: list[Request] = []
        self.send(Draft(self._known))
        world.after(0.05, self.act)

    def _open(self) -> Session:
        self_continue = self._chance.random() < 0.5
        return self.world.open(self.prompt, max_tokens=LENGTH, sampling=self._sampling, self_continue=self_continue)

    def act(self) -> None:
        """Send one request (valid, wrong, stale, contained in another, too long) or none; schedule the next action."""
        chance = self._chance
        if self.session.gone or self.world.now > ENDS:
            return
        act, at = chance.choice(ACTS), self._known - len(self.prompt)
        back = chance.randint(0, at) if act.startswith("stale") else 0
        position, right = self._known - back, self.text[at - back :][: chance.randint(0, back + 9)]
        if act in ("tree", "stale tree"):
            self.send(random_tree(chance, position, right, 40, 8))
        elif act == "repeated" and self.waiting:
            self.send(chance.choice(self.waiting).draft.first(chance.choice([None, 4])))
        elif act == "renew":
            self._renew()
        elif act == "cancel" and self.waiting:
            self.waiting.pop().cancelled = True
        elif act != "rest":
            wrong = {"wrong": [chance.randrange(40) for _ in range(3)], "too long": [0] * 40}.get(act, [])
            self.send(Draft.chain(position, [] if act == "plain" else right + wrong))
            if act == "double":
                self.send(Draft.chain(position, self.text[at : at + 12]))
        self.world.after(chance.choice([0.0, 0.001, 0.01, 0.05, 0.3, 3.0]), self.act)

    def _renew(self) -> None:
        """Replace the session by a new one with some of the text; its waiting requests fail."""
        old, self.session = self.session, self._open()
        self.session.resume(self.text[: self._chance.randint(0, len(self.text))])
        self._known = len(self.session.tokens)
        self.world.scheduler.replace(old, self.session)
        assert not [each for each in self.waiting if each.session is old and not each.cancelled]

    def send(self, draft: Draft) -> None:
        def done(result: Answer | SpecPairError) -> None:
            if request.cancelled:
                return
            self.waiting.remove(request)
            if isinstance(result, Answer):
                self._check(request, result)
            else:
                assert isinstance(result, EngineError | UnknownSession | TooManyDrafts)

        policy = RejectionPolicy(
            self._chance.choice([None, True, False]), self._chance.choice([None, None, 0.0, 0.01, 0.1])
        )
        request = Request(self.session, draft, done, policy=policy)
        self.waiting.append(request)
        try:
            self.world.scheduler.submit(request, self.world.now)
        except Overloaded:
            self.waiting.remove(request)

    def _check(self, request: Request, answer: Answer) -> None:
        at, draft = request.position - len(self.prompt), request.draft
        assert answer.tokens == self.text[at : answer.total_tokens - len(self.prompt)]
        if draft.is_chain:
            assert answer.accepted == common_prefix(draft.ids, answer.tokens) and answer.path is None
        else:
            assert answer.path is not None and answer.accepted == len(answer.path)
            assert [draft.ids[each] for each in answer.path] == answer.tokens[: answer.accepted]
        assert answer.judged <= min(len(draft), 32) and answer.queue >= 0.0
        assert answer.tokens or answer.finish_reason
        if request.session is self.session:
            self._known = max(self._known, answer.total_tokens)

    def finish(self) -> None:
        """Check that every request was answered, and decode the rest of the text."""
        assert [each for each in self.waiting if not each.cancelled] == [], "every request was answered"
        generated, done = self.session.tokens[len(self.prompt) :], list[Answer]()
        assert generated == self.text[: len(generated)]
        if not self.session.gone:
            self.world.ask(self.session, len(self.prompt), [], done.append, until_end=True)
            self.world.run(self.world.now + 60.0)
            assert self.session.tokens == [*self.prompt, *self.text] and done[-1].finish_reason is not None


def run(seed: int) -> str:
    """Run the world of a seed, and check it. Returns what happened, the same each time."""
    chance = random.Random(seed)
    head_depth, agreement = random_head(seed)
    backend = Fragile(
        replace(SCRIPT, head_agreement=agreement),
        slots=chance.randint(1, 6),
        context_length=256,
        max_batch_tokens=chance.choice([34, 64, 200]),
        max_rollback=chance.choice([None, None, 0, 3]),
        can_copy=chance.random() < 0.7,
        head_depth=head_depth,
    )
    backend.even_width = chance.choice([None, 4, 63])
    backend.takes_trees = chance.random() < 0.8
    backend.chance = chance if chance.random() < 0.3 else None
    world = World(
        backend,
        cost=lambda plan: chance.uniform(0.001, 0.03) + 0.0002 * plan.tokens,
        max_drafts=32,
        prefill_chunk=chance.choice([8, 32, 128]),
        max_queue=chance.choice([6, 256]),
        batching_window=chance.choice([0.0, 0.1, 0.6]),
    )
    clients: list[Client] = []

    def start() -> None:
        prompt = [256, *SYSTEM[: chance.choice([0, 20, 39])], *chance.choices(range(40), k=chance.randint(1, 60))]
        client = Client(world, chance, prompt, Sampling(len(clients), chance.choice([0.0, 0.8])))
        clients.append(client)
        if chance.random() < 0.3:
            world.after(chance.uniform(0.0, 3.0), lambda: world.scheduler.forget(client.session))

    for _ in range(8):
        world.at(chance.uniform(0.0, 1.0), start)
    world.run(ENDS)
    backend.chance = None
    world.run(60.0)
    assert world.scheduler.wake_at is None, "it is idle"
    for client in clients:
        client.finish()
    return f"{len(world.plans)} passes, {sum(len(each.session.tokens) for each in clients)} tokens"
