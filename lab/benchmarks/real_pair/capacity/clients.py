"""Clients of the real scheduler in virtual time: plain ones, drafters, and those for whom the server drafts.

A text's first token is a number of its own: so no two texts share what was read of a prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count

from lab.benchmarks.real_pair.capacity.crowd import Client, Crowd, Piece, Writing
from lab.benchmarks.real_pair.machines import Setting, plan_seconds
from lab.benchmarks.real_pair.pair import FIRST, GREEDY, Numbering, RecordedDrafter, RecordedTarget
from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.drafting.rounds import VirtualMember, VirtualRounds
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.shared_device import SharedDevice
from lab.simulator.virtual.world import World, or_raise
from specpair.drafters.run.events import Committed
from specpair.speculation.draft import Draft
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.experience import Experience
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.pass_time import WIDER
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

BATCH_TOKENS = 2048  # of a pass, at most

Numberings = Mapping[int, Numbering]  # by the id of the piece


class Room:
    """One verifier with its clients."""

    def __init__(self, crowd: Crowd, setting: Setting, numberings: Numberings, chunk: int | None) -> None:
        """`chunk`: prompt tokens of a pass, at most; None: as it ships."""
        self.crowd, self.setting, self.numberings = crowd, setting, numberings
        self.backend, self._names = RecordedTarget(len(crowd.clients), BATCH_TOKENS), count(FIRST)
        self.held = ExitStack()  # what the texts hold that are under way at the end
        target = setting.target.cost
        wide = [(width, target.seconds([(width, 0)])) for width in WIDER]
        self.pass_times = CostByWidth([*enumerate(setting.pass_times, 1), *wide])

        def pass_time(plan: BatchPlan) -> float:
            verifies = sum(part.run is not None for part in plan.parts)
            self.crowd.passed(self.world.now, plan.tokens, verifies)
            return plan_seconds(target, plan)

        def run(seconds: float, over: Callable[[], None]) -> None:
            device.run(seconds, over)

        self.run = run if setting.one_device else None
        self.world = World(self.backend, pass_time, pass_times=self.pass_times, prefill_chunk=chunk, run=self.run)
        device = SharedDevice(self.world)

    def session(self, writing: Writing) -> Session:
        """A session for a text, of which the engine gets to know the tokens."""
        name, numbering, text = next(self._names), self.numberings[id(writing.piece)], writing.piece.text
        whole = [name, *map(numbering.of, [*text.prompt, *text.written.tokens][1:])]
        self.backend.knows(whole)
        begins = len(text.prompt) + writing.begins
        spec, ends = TextSpec.of(GREEDY), self.backend.vocabulary.ends
        return Session(f"text {name}", whole[:begins], begins, spec, len(whole), ends)

    def later(self, do: Callable[[], object]) -> None:
        """Call `do` after half a round trip."""
        self.world.at(self.world.now + self.setting.rtt / 2, do)

    def learn(self, client: Client, session: Session, tokens: int) -> bool:
        """Note that a client learns `tokens` more tokens. Returns whether its text is over."""
        over = client.learnt(tokens, self.world.now)
        assert not over or self.backend.knew(session.tokens), "it wrote another text"
        return over

    def write(self, begins: Callable[[Client], Callable[[], None]]) -> None:
        """Have the crowd's texts written. `begins`: what has the next text of a client begin."""
        for client in self.crowd.clients:
            self.world.at(client.starts, begins(client))
        with self.held:
            self.world.run(done=lambda: self.crowd.done)


class Plain:
    """A client that drafts nothing: the server decodes, and streams."""

    def __init__(self, room: Room, client: Client) -> None:
        self._room, self._client = room, client

    def begin(self) -> None:
        room = self._room
        session = room.session(self._client.next())

        def learn(tokens: int) -> None:
            if room.learn(self._client, session, tokens):
                self.begin()

        def answered(answer: Answer) -> None:
            room.later(lambda: learn(len(answer.tokens)))

        request = Request(session, Draft(session.prompt_len), or_raise(answered), until_end=True)
        room.later(lambda: room.world.scheduler.submit(request, room.world.now))


class Drafts:
    """A client with a draft model on a device of its own, over the link."""

    def __init__(self, room: Room, client: Client, *, trees: bool) -> None:
        self._room, self._client = room, client
        self._mechanisms, self._experience = Mechanisms(trees=trees), Experience()
        self._engine = DraftEngine(room.world, room.setting.drafter.cost)

    def begin(self) -> None:
        room = self._room
        held = room.held.enter_context(ExitStack())
        writing = self._client.next()
        text, session = writing.piece.text, room.session(writing)
        estimates = held.enter_context(self._experience.text(TextSpec.of(text.sampling), room.pass_times))

        def tell(committed: Committed) -> None:
            if room.learn(self._client, writer.session, len(committed.tokens)):
                held.close()
                room.world.at(room.world.now, self.begin)

        writer = EngineDrafter(
            room.world,
            session.tokens,
            RecordedDrafter(writing.piece.choices, room.numberings[id(writing.piece)]),
            self._engine,
            0,
            tell,
            max_tokens=session.limit - session.prompt_len,
            network=Network(room.setting.rtt),
            overhead=room.setting.overhead,
            mechanisms=self._mechanisms,
            lookup=True,
            estimates=estimates,
            name=session.id,
        )
        writer.start()


class Served:
    """A client for whom the server drafts, with a draft model on the target's device."""

    def __init__(self, room: Room, rounds: VirtualRounds, experience: Experience, client: Client) -> None:
        self._room, self._rounds, self._experience, self._client = room, rounds, experience, client

    def begin(self) -> None:
        room = self._room
        held = room.held.enter_context(ExitStack())
        writing = self._client.next()
        piece, session = writing.piece, room.session(writing)
        spec = TextSpec.of(piece.text.sampling)
        estimates = held.enter_context(self._experience.text(spec, room.pass_times, together=True))

        def learn(tokens: int) -> None:
            if room.learn(self._client, session, tokens):
                held.close()
                self.begin()

        def answered(answer: Answer, _draft: Draft) -> None:
            room.later(lambda: learn(len(answer.tokens)))

        member = VirtualMember(
            session,
            session.prompt_len,
            RecordedDrafter(piece.choices, room.numberings[id(piece)]),
            estimates.acceptance,
            answered,
            lookups=Lookups(session.prompt_len, in_text=True),
        )

        def write() -> None:
            self._rounds.read(member)
            self._rounds.write(member)

        room.later(write)


def alone(crowd: Crowd, setting: Setting, numberings: Numberings, chunk: int | None) -> None:
    """The target alone."""
    room = Room(crowd, setting, numberings, chunk)
    room.write(lambda client: Plain(room, client).begin)


def drafted(crowd: Crowd, setting: Setting, numberings: Numberings, chunk: int | None, *, trees: bool) -> None:
    """Each client has a drafter."""
    room = Room(crowd, setting, numberings, chunk)
    room.write(lambda client: Drafts(room, client, trees=trees).begin)


def served(crowd: Crowd, setting: Setting, numberings: Numberings, chunk: int | None) -> None:
    """The server drafts for all clients."""
    room = Room(crowd, setting, numberings, chunk)
    engine = DraftEngine(room.world, setting.same_box, len(crowd.clients), run=room.run)
    rounds = VirtualRounds(room.world, room.world, engine, room.pass_times, overlaps=room.run is None)
    experience = Experience()
    room.write(lambda client: Served(room, rounds, experience, client).begin)


def numberings_of(pieces: Sequence[Piece], ends: frozenset[int]) -> Numberings:
    """Short ids for the tokens of each piece."""
    return {id(piece): Numbering(ends) for piece in pieces}


FORMS: dict[str, Callable[..., None]] = {
    "alone": alone,
    "chains": partial(drafted, trees=False),
    "trees": partial(drafted, trees=True),
    "fused": served,
}
