"""A fleet on one clock: conversations come, a router chooses nodes, nodes fail, start and stop. Times in seconds."""

import random
from collections.abc import Iterator

from drafter_client.http.retries import PATIENCE
from gateway.balancing import ordered
from lab.simulator.fleet.conversation import Conversation
from lab.simulator.fleet.nodes import Nodes
from lab.simulator.fleet.record import FleetObserver
from lab.simulator.fleet.run import RequestRun
from lab.simulator.fleet.settings import FleetSetting
from lab.simulator.fleet.users import Users
from lab.simulator.virtual.world import EventLoop


class Fleet:
    """A fleet at work."""

    def __init__(self, setting: FleetSetting, conversations: Iterator[Conversation], observer: FleetObserver) -> None:
        """`conversations`: in the order of their starts. In a closed loop, each begins as another ends.

        Raises ValueError for a device whose mode lacks a draft model.
        """
        _check(setting)
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

    def abandon(self, run: RequestRun) -> None:
        """Note that a text will not be written, which may wait for a node."""
        self._homeless.pop(run, None)

    def _settle(self) -> None:
        """Begin the texts for which there was no node."""
        homeless, self._homeless = self._homeless, {}
        for run in homeless:
            self.route(run)


def _check(setting: FleetSetting) -> None:
    """Raise ValueError for a setting that cannot run."""
    for device in setting.devices:
        if device.mode == "fused" and any(each.draft_cost is None for each in setting.kinds):
            raise ValueError("a device is in mode fused: give each verifier the draft_cost of its draft model")
        if device.mode in ("lockstep", "remote") and device.cost is None:
            raise ValueError(f"a device is in mode {device.mode}: give it the cost of its draft model")
    unknown = next((each.node for each in setting.failures if each.node not in setting.verifiers), None)
    if unknown is not None:
        raise ValueError(f"a failure names the verifier {unknown!r}: there are {', '.join(setting.verifiers)}")
