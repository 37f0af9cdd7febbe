"""A fleet on one clock: conversations arrive, a router selects nodes, texts are written. Times in seconds."""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator

from gateway.balancing import NewText, Policy, ordered, policy_of
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.operation import ALL, network_between
from lab.simulator.configuration.workload import ClosedArrivals
from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.record import Conversation, FleetObserver, Record, Status
from lab.simulator.fleet.request import FleetDevice, RequestRun
from lab.simulator.fleet.text import Text, text_of
from lab.simulator.fleet.writers import WRITERS
from lab.simulator.virtual.draft_engine import DraftEngine, Learnt
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import EventLoop


class Fleet:
    """A fleet at work."""

    def __init__(
        self, configuration: Configuration, seed: int, conversations: Iterator[Conversation], observer: FleetObserver
    ) -> None:
        """`seed`: all the chance but that of `conversations`.
        `conversations`: in the order of their starts. In a closed loop, each begins as another ends.
        `observer`: told of all requests, and of the verifiers' load now and then.
        """
        self.loop, self.configuration, self.observer = EventLoop(), configuration, observer
        self.policy: Policy = policy_of(configuration.router)()
        self._seed = seed
        kinds, window = configuration.devices.verifiers, configuration.batching_window
        names = [(f"{kind.name}-{number}", kind) for kind in kinds for number in range(1, kind.count + 1)]
        self.nodes = {name: FleetNode(self.loop, name, kind, window) for name, kind in names}
        self.longest = max(kind.longest for kind in kinds)  # text that a verifier takes, in tokens
        self._networks: dict[tuple[str, str], Network] = {}
        self._free = [
            FleetDevice(kind, Learnt(DraftEngine(self.loop, kind.pass_cost)))
            for kind in configuration.devices.drafters
            for _ in range(kind.count)
        ]
        self._waiting: deque[RunningConversation] = deque()  # for a free device
        self._conversations, self._all_come = conversations, False
        self._under_way: dict[RunningConversation, None] = {}  # in the order of their beginning
        self._closed = isinstance(configuration.workload, ClosedArrivals)
        if configuration.look_every_ms:
            self._every(configuration.look_every_ms * MS, self._look)
        self._every(configuration.sample_every_ms * MS, self._sample)
        for _ in range(configuration.workload.users if isinstance(configuration.workload, ClosedArrivals) else 1):
            self._next()

    @property
    def finished(self) -> bool:
        """Whether all conversations are over."""
        return self._all_come and not self._under_way

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until all conversations are over, at most up to `until`.

        Raises RuntimeError for a text that is not the target's.
        """
        self.loop.run(until, lambda: self.finished)

    def interrupt(self) -> None:
        """Report the requests under way to the observer as unfinished. The fleet cannot run afterwards."""
        for each in self._under_way:
            each.interrupt()

    def stream(self, name: str) -> random.Random:
        """The random stream of this name."""
        return random.Random(f"{self._seed}/{name}")

    def network(self, device: FleetDevice, node: FleetNode) -> Network:
        """The link between the two. The router on the way takes no time."""
        ends = (ALL if device.kind is None else device.kind.name, node.kind.name)
        if ends not in self._networks:
            self._networks[ends] = network_between(self.configuration.connections, *ends)
        return self._networks[ends]

    def route(self, text: NewText, tokens: int) -> FleetNode:
        """The node that the policy chooses for a text of so many tokens, its answer included."""
        taking = [each for each in self.nodes.values() if each.kind.longest >= tokens]
        if not self.configuration.look_every_ms:
            for each in taking:
                each.look()
        return self.policy.choose(ordered(text.key, taking), text)

    # Devices: first come, first served, each of the free ones as likely.

    def take_device(self, user: "RunningConversation", rng: random.Random) -> None:
        """Have the user begin at a device once a device is free. `rng`: selects the device."""
        if not self.configuration.devices.drafters:
            user.begin(FleetDevice(None, Learnt()))
        elif self._free:
            number = rng.randrange(len(self._free))
            self._free[number], self._free[-1] = self._free[-1], self._free[number]
            user.begin(self._free.pop())
        else:
            self._waiting.append(user)

    def over(self, dialogue: "RunningConversation", device: FleetDevice | None) -> None:
        """Note that a conversation is over, which gives its device back."""
        if device is not None and device.kind is not None:
            if self._waiting:
                self._waiting.popleft().begin(device)
            else:
                self._free.append(device)
        del self._under_way[dialogue]
        if self._closed:
            self._next()

    def _next(self) -> None:
        """Wait for the next conversation."""
        conversation = next(self._conversations, None)
        if conversation is None:
            self._all_come = True
            return

        def come() -> None:
            dialogue = RunningConversation(self, conversation)
            self._under_way[dialogue] = None
            dialogue.think()
            if not self._closed:
                self._next()

        self.loop.at(conversation.start, come)

    def _every(self, seconds: float, do: Callable[[], object]) -> None:
        def again() -> None:
            do()
            self.loop.at(self.loop.now + seconds, again)

        self.loop.at(self.loop.now + seconds, again)

    def _look(self) -> None:
        for each in self.nodes.values():
            each.look()

    def _sample(self) -> None:
        self.observer.sample([each.sample() for each in self.nodes.values()])


class RunningConversation:
    """A conversation under way. It keeps its device from its first turn to its end.

    A turn that no verifier's context holds is refused, one that an overloaded verifier does not take for too long
    fails, and the conversation is over.
    """

    def __init__(self, fleet: Fleet, conversation: Conversation) -> None:
        self._fleet, self._conversation = fleet, conversation
        self._device: FleetDevice | None = None
        self._number = 0  # of the turn
        self._before: list[int] = []  # the text so far
        self._record: Record | None = None  # of the turn that was asked; None: the user thinks
        self._run: RequestRun | None = None

    def think(self) -> None:
        """Request the turn after the time to think."""
        self._fleet.loop.at(self._fleet.loop.now + self._conversation.turns[self._number].think, self._ask)

    def begin(self, device: FleetDevice) -> None:
        """Begin at a device that is free."""
        assert self._record is not None, "it has asked"
        self._device, self._record.waited = device, self._fleet.loop.now - self._record.sent
        self._write(self._record, device)

    def interrupt(self) -> None:
        """Report the request under way as unfinished."""
        if self._run is not None:
            self._run.close()
        if self._record is not None:
            self._tell(Status.UNFINISHED)

    def _ask(self) -> None:
        conversation, turn = self._conversation, self._conversation.turns[self._number]
        before = len(self._before) if self._number else 1 + conversation.prefix
        tokens = before + conversation.new_tokens(self._number), turn.output_tokens
        self._record = Record(conversation.name, self._number, conversation.tenant, *tokens, sent=self._fleet.loop.now)
        if self._record.text_tokens > self._fleet.longest:
            self._end(Status.REFUSED)
        elif self._device is None:
            self._fleet.take_device(self, self._fleet.stream(f"{conversation.name}/device"))
        else:
            self._write(self._record, self._device)

    def _write(self, record: Record, device: FleetDevice) -> None:
        """Have the answer written."""
        conversation, fleet = self._conversation, self._fleet
        record.device = "" if device.kind is None else device.kind.name
        prefixes: tuple[str, ...] = (conversation.name,) if self._number else ()
        prefixes += (conversation.tenant,) if conversation.prefix else ()
        tpot = fleet.configuration.slo_of(conversation.tenant).tpot_ms
        deadline = math.inf if tpot is None else tpot * MS  # of each draft, which brings one token at least
        new = NewText(f"{conversation.name}/{self._number}", prefixes, float(record.output_tokens), deadline)
        node = fleet.route(new, record.text_tokens)
        text: Text = text_of(conversation, self._number, self._before, fleet.stream)
        self._run = RequestRun(
            fleet,
            device,
            node,
            record,
            text,
            deadline,
            WRITERS[fleet.configuration.mode],
            over=self._over,
            failed=lambda: self._end(Status.FAILED),
        )

    def _over(self, run: RequestRun) -> None:
        self._before = run.text.tokens(0, run.record.text_tokens)
        self._tell(Status.WHOLE)
        self._number += 1
        go_on = self.think if self._number < len(self._conversation.turns) else self._leave
        self._fleet.loop.at(run.released, go_on)

    def _tell(self, status: Status) -> None:
        assert self._record is not None
        record, self._record, self._run = self._record, None, None
        record.status, record.over = status, self._fleet.loop.now
        self._fleet.observer.record(record)

    def _end(self, status: Status) -> None:
        self._tell(status)
        self._leave()

    def _leave(self) -> None:
        self._fleet.over(self, self._device)
