"""Clients in virtual time that send right, wrong, stale, repeated and cancelled requests, to an engine that may fail.

Every text is that of plain decoding, every request is answered, and the scheduler is consistent after each event.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.protocol.errors import EngineError, Overloaded, SpecPairError, TooManyDrafts, UnknownSession
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.trees import random_tree
from tests.verifier_server.engine.virtual import World
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

SCRIPT = Script(seed=3, support=40, end_bias=5.0)
LENGTH = 60
SYSTEM = list(range(1, 40))


@lru_cache(64)
def text_of(prompt: tuple[int, ...], sampling: Sampling) -> list[int]:
    return plain(SCRIPT, prompt, LENGTH, sampling)


class Fragile(ScriptedBackend):
    """Fails 3 % of its passes."""

    chance: random.Random | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.chance is not None and self.chance.random() < 0.03:
            raise EngineFailure("a device went away")
        return super()._forward(batch)


@dataclass
class Client:
    """A client that sends random requests for one session."""

    world: World
    chance: random.Random
    session: Session
    known: int  # the highest position an answer gave
    waiting: list[Request] = field(default_factory=list)

    @property
    def text(self) -> list[int]:
        return text_of(tuple(self.session.tokens[: self.session.prompt_len]), self.session.spec.sampling)

    def act(self) -> None:
        """Send one request (right, wrong, stale, contained in another, too long) or none; schedule the next action."""
        if self.session.gone or self.world.now > 6.0:
            return
        kinds = ["right", "right", "wrong", "stale", "plain", "double", "too long", "cancel", "rest", "renew"]
        kinds += ["tree", "tree", "stale tree", "repeated"]
        kind = self.chance.choice(kinds)
        at = self.known - self.session.prompt_len
        right = self.text[at : at + self.chance.randint(0, 9)]
        if kind == "stale":
            back = self.chance.randint(0, at)
            self.send(self.known - back, self.text[at - back :][: self.chance.randint(0, 12)])
        elif kind == "stale tree":
            back = self.chance.randint(0, at)
            right = self.text[at - back :][: self.chance.randint(0, back + 6)]
            self.send(self.known - back, random_tree(self.chance, self.known - back, right, 40, 8))
        elif kind == "tree":
            self.send(self.known, random_tree(self.chance, self.known, right, 40, 8))
        elif kind == "repeated" and self.waiting:
            again = self.chance.choice(self.waiting).draft
            self.send(again.position, again.first(self.chance.choice([None, 4])))
        elif kind == "renew":
            self.renew()
        elif kind == "cancel" and self.waiting:
            self.waiting.pop().cancelled = True
        elif kind == "too long":
            self.send(self.known, right + [0] * 40)
        elif kind != "rest":
            wrong = [self.chance.randrange(40) for _ in range(3)] if kind == "wrong" else []
            self.send(self.known, [] if kind == "plain" else right + wrong)
            if kind == "double":
                self.send(self.known, self.text[at : at + 12])
        self.world.after(self.chance.choice([0.0, 0.001, 0.01, 0.05, 0.3, 3.0]), self.act)

    def renew(self) -> None:
        """Replace the session by a new one with some of the text; its waiting requests fail."""
        old, text = self.session, self.text
        prompt, self_continue = old.tokens[: old.prompt_len], self.chance.random() < 0.5
        self.session = new = self.world.open(
            prompt, max_tokens=LENGTH, sampling=old.spec.sampling, self_continue=self_continue
        )
        new.resume(text[: self.chance.randint(0, len(text))])
        self.known = len(new.tokens)
        self.world.scheduler.replace(old, new)
        assert not [request for request in self.waiting if request.session is old and not request.cancelled]

    def send(self, position: int, drafts: Sequence[int] | Draft) -> None:
        def done(result: Answer | SpecPairError) -> None:
            if request.cancelled:
                return
            self.waiting.remove(request)
            if isinstance(result, Answer):
                self.check(request, result)
            else:
                assert isinstance(result, EngineError | UnknownSession | TooManyDrafts)

        next_in = self.chance.choice([None, None, 0.0, 0.01, 0.1])
        self_continue = self.chance.choice([None, True, False])
        draft = drafts if isinstance(drafts, Draft) else Draft.chain(position, drafts)
        request = Request(self.session, draft, done, policy=RejectionPolicy(self_continue, next_in))
        self.waiting.append(request)
        try:
            self.world.scheduler.submit(request, self.world.now)
        except Overloaded:
            self.waiting.remove(request)

    def check(self, request: Request, answer: Answer) -> None:
        at = request.position - request.session.prompt_len
        assert answer.tokens == self.text[at : answer.total_tokens - request.session.prompt_len]
        if request.draft.is_chain:
            assert answer.accepted == common_prefix(request.draft.ids, answer.tokens) and answer.path is None
        else:
            assert answer.path is not None and answer.accepted == len(answer.path)
            assert [request.draft.ids[each] for each in answer.path] == answer.tokens[: answer.accepted]
        assert answer.judged <= min(len(request.draft), 32)
        assert answer.tokens or answer.finish_reason
        assert answer.queue >= 0.0
        if request.session is self.session:
            self.known = max(self.known, answer.total_tokens)


def finish(world: World, client: Client) -> None:
    """Decode the rest of a text."""
    done: list[Answer] = []
    world.ask(client.session, client.session.prompt_len, [], done.append, until_end=True)
    world.run(world.now + 60.0)
    assert client.session.tokens[client.session.prompt_len :] == client.text
    assert done[-1].finish_reason is not None


def run(seed: int) -> str:
    """Run the world of a seed, and check it. Returns what happened, the same each time."""
    chance = random.Random(seed)
    backend = Fragile(
        SCRIPT,
        slots=chance.randint(1, 6),
        context_length=256,
        max_batch_tokens=chance.choice([34, 64, 200]),
        max_rollback=chance.choice([None, None, 0, 3]),
        can_copy=chance.random() < 0.7,
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
        shared = SYSTEM[: chance.choice([0, 20, 39])]
        prompt = [256, *shared, *(chance.randrange(40) for _ in range(chance.randint(1, 60)))]
        sampling = Sampling(len(clients), chance.choice([0.0, 0.8]))
        session = world.open(prompt, max_tokens=LENGTH, sampling=sampling, self_continue=chance.random() < 0.5)
        client = Client(world, chance, session, len(prompt))
        clients.append(client)
        client.send(len(prompt), [])
        world.after(0.05, client.act)
        if chance.random() < 0.3:
            world.after(chance.uniform(0.0, 3.0), lambda: world.scheduler.forget(client.session))

    for _ in range(8):
        world.at(chance.uniform(0.0, 1.0), start)
    world.run(6.0)
    backend.chance = None
    world.run(60.0)
    assert world.scheduler.wake_at is None, "it is idle"
    for client in clients:
        assert [request for request in client.waiting if not request.cancelled] == [], "every request was answered"
        generated = client.session.tokens[client.session.prompt_len :]
        assert generated == client.text[: len(generated)]
        if not client.session.gone:
            finish(world, client)
    return f"{len(world.plans)} passes, {sum(len(each.session.tokens) for each in clients)} tokens"
