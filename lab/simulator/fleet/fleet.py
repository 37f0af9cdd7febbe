"""A fleet on one clock: users' conversations come, a router chooses nodes, texts are written. Times in seconds."""

import random
from collections import deque
from collections.abc import Iterator, Sequence

from drafter_client.http.retries import PATIENCE
from gateway.balancing import NewText, ordered
from lab.simulator.fleet.nodes import Nodes
from lab.simulator.fleet.record import Conversation, FleetObserver, Record, Status
from lab.simulator.fleet.run import Dispatcher, RequestRun
from lab.simulator.fleet.settings import DeviceKind, FleetSetting
from lab.simulator.fleet.text import text_of
from lab.simulator.virtual.draft_engine import DraftEngine, Learnt
from lab.simulator.virtual.world import EventLoop


class FleetDevice:
    """A device."""

    __slots__ = ("kind", "learnt")

    def __init__(self, loop: EventLoop, kind: DeviceKind) -> None:
        self.kind = kind
        self.learnt = Learnt(None if kind.cost is None else DraftEngine(loop, kind.cost))


class DevicePool:
    """Gives free devices to users: first come, first served, each of the free devices as likely."""

    def __init__(self, loop: EventLoop, kinds: Sequence[DeviceKind]) -> None:
        self._loop, self._kinds = loop, kinds
        self._free = [FleetDevice(loop, kind) for kind in kinds for _ in range(kind.count or 0)]
        self._waiting: deque[RunningConversation] = deque()

    def take(self, user: "RunningConversation", rng: random.Random) -> None:
        """Have the user begin at a device, once one is free. `rng`: decides which one."""
        if self._kinds[0].count is None:
            user.begin(FleetDevice(self._loop, self._kinds[0]))
        elif self._free:
            number = rng.randrange(len(self._free))
            self._free[number], self._free[-1] = self._free[-1], self._free[number]
            user.begin(self._free.pop())
        else:
            self._waiting.append(user)

    def release(self, device: FleetDevice) -> None:
        """Take a device back from its user."""
        if device.kind.count is None:
            return
        if self._waiting:
            self._waiting.popleft().begin(device)
        else:
            self._free.append(device)


class Users:
    """All conversations of a workload: an open one, or the closed loop of a number of users."""

    def __init__(
        self, fleet: Dispatcher, setting: FleetSetting, conversations: Iterator[Conversation], observer: FleetObserver
    ) -> None:
        """`conversations`: in the order of their starts. In a closed loop, one begins as another ends."""
        self.fleet, self.setting, self.observer = fleet, setting, observer
        self.pool = DevicePool(fleet.loop, setting.devices)
        self.under_way: dict[RunningConversation, None] = {}  # in the order of their beginning
        self.longest = max(each.context for each in setting.kinds)  # text that a verifier takes, in tokens
        self._conversations, self._all_come = conversations, False
        for _ in range(setting.users or 1):
            self._next()

    @property
    def finished(self) -> bool:
        """Whether all conversations are over."""
        return self._all_come and not self.under_way

    def over(self, dialogue: "RunningConversation") -> None:
        """Note that a conversation is over."""
        del self.under_way[dialogue]
        if self.setting.users is not None:
            self._next()

    def interrupt(self) -> None:
        """Tell of the requests that are under way as unfinished."""
        for each in self.under_way:
            each.interrupt()

    def _next(self) -> None:
        """Wait for the next conversation."""
        conversation = next(self._conversations, None)
        if conversation is None:
            self._all_come = True
            return

        def come() -> None:
            dialogue = RunningConversation(self, conversation)
            self.under_way[dialogue] = None
            dialogue.think()
            if self.setting.users is None:
                self._next()

        self.fleet.loop.at(conversation.start, come)


class RunningConversation:
    """A conversation under way. It keeps its device from its first turn to its end.

    A turn that no verifier's context holds is refused, one for which no verifier is there for too long fails, and the
    conversation is over.
    """

    def __init__(self, users: Users, conversation: Conversation) -> None:
        self._users, self._fleet, self._conversation = users, users.fleet, conversation
        self._device: FleetDevice | None = None
        self._number = 0  # of the turn
        self._before: list[int] = []  # the text so far
        self._record: Record | None = None  # of the turn that was asked; None: the user thinks
        self._run: RequestRun | None = None

    def think(self) -> None:
        """Ask the turn after the time to think."""
        self._fleet.loop.at(self._fleet.loop.now + self._conversation.turns[self._number].think, self._ask)

    def begin(self, device: FleetDevice) -> None:
        assert self._record is not None, "it has asked"
        self._device = device
        self._record.device, self._record.waited = device.kind.name, self._fleet.loop.now - self._record.sent
        self._write(self._record, device)

    def interrupt(self) -> None:
        """Tell of the request that is under way as unfinished."""
        if self._run is not None:
            self._run.abort()
        if self._record is not None:
            self._tell(Status.UNFINISHED)

    def _ask(self) -> None:
        device = self._device
        conversation, turn = self._conversation, self._conversation.turns[self._number]
        before = len(self._before) if self._number else 1 + conversation.prefix
        prompt_tokens = before + conversation.new_tokens(self._number)
        self._record = Record(
            conversation.name,
            self._number,
            conversation.tenant,
            prompt_tokens,
            turn.output_tokens,
            self._fleet.loop.now,
        )
        if self._record.text_tokens > self._users.longest:
            self._tell(Status.REFUSED)
            self._end()
        elif device is None:
            self._users.pool.take(self, self._fleet.stream(f"{conversation.name}/device"))
        else:
            self._record.device = device.kind.name
            self._write(self._record, device)

    def _write(self, record: Record, device: FleetDevice) -> None:
        """Have the answer written."""
        conversation, setting, stream = self._conversation, self._users.setting, self._fleet.stream
        name = f"{conversation.name}/{self._number}"
        prefixes: tuple[str, ...] = (conversation.name,) if self._number else ()
        prefixes += (conversation.tenant,) if conversation.prefix else ()
        self._run = RequestRun(
            self._fleet,
            record,
            text_of(conversation, self._number, self._before, stream),
            NewText(name, prefixes, float(record.output_tokens), setting.deadlines(conversation.tenant)),
            device.kind,
            device.learnt,
            stream(f"{name}/link"),
            self._over,
            self._failed,
        )
        self._fleet.route(self._run)

    def _over(self, run: RequestRun) -> None:
        self._before = run.text.tokens(0, run.record.prompt_tokens + run.record.output_tokens)
        self._tell(Status.WHOLE)
        self._number += 1
        go_on = self.think if self._number < len(self._conversation.turns) else self._end
        self._fleet.loop.at(run.released, go_on)

    def _failed(self) -> None:
        self._tell(Status.FAILED)
        self._end()

    def _tell(self, status: Status) -> None:
        assert self._record is not None
        record, self._record, self._run = self._record, None, None
        record.status, record.over = status, self._fleet.loop.now
        gone_on = status in (Status.WHOLE, Status.UNFINISHED)
        record.last = not gone_on or self._number + 1 == len(self._conversation.turns)
        self._users.observer.record(record)

    def _end(self) -> None:
        if self._device is not None:
            self._users.pool.release(self._device)
        self._users.over(self)


class Fleet:
    """A fleet at work."""

    def __init__(self, setting: FleetSetting, conversations: Iterator[Conversation], observer: FleetObserver) -> None:
        """`conversations`: in the order of their starts. In a closed loop, each begins as another ends."""
        self.loop = EventLoop()
        self._setting = setting
        self._homeless: dict[RequestRun, float] = {}  # texts for which no node is there, and since when
        self.verifiers = Nodes(self.loop, setting, self.stream, observer, self._settle)
        self._policy = setting.policy()
        self.users = Users(self, setting, conversations, observer)

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until all conversations are over, at most up to `until`.

        Raises RuntimeError for a text that is not the target's.
        """
        self.loop.run(until, lambda: self.users.finished)

    def interrupt(self) -> None:
        """Tell the observer of the requests that are under way, as unfinished ones. Nothing can be run afterwards."""
        self.users.interrupt()

    def stream(self, name: str) -> random.Random:
        """The stream of chance of this name."""
        return random.Random(f"{self._setting.seed}/{name}")

    def route(self, run: RequestRun) -> None:
        """Begin a text, or go on with it, at the node that the policy chooses; without nodes, when there is one.

        Its device waits for that as long as the client that ships, and then gives up.
        """
        taking = [each for each in self.verifiers.taking() if each.kind.context >= run.record.text_tokens]
        if not taking:
            self._homeless[run] = since = self.loop.now

            def over() -> None:
                if self._homeless.get(run) == since:
                    del self._homeless[run]
                    run.give_up()

            self.loop.at(since + PATIENCE, over)
            return
        if not self._setting.look_every:
            for each in taking:
                each.look()
        run.begin(self._policy.choose(ordered(run.new_text.key, taking), run.new_text))

    def _settle(self) -> None:
        """Begin the texts for which there was no node."""
        homeless, self._homeless = self._homeless, {}
        for run in homeless:
            self.route(run)
