"""A fleet on one clock: conversations come, a router chooses nodes, nodes fail, start and stop. Times in seconds."""

import random
from collections.abc import Iterator
from itertools import accumulate

from backends.scripted import BEGIN
from simulator.fleet.node import Node
from simulator.fleet.observer import Observer
from simulator.fleet.record import Record
from simulator.fleet.run import TextRun
from simulator.fleet.settings import Autoscaling, Device, Failure, FleetSetting
from simulator.fleet.text import Text
from simulator.virtual.world import EventLoop
from simulator.workload.conversation import Conversation
from specpair.balancing.candidate import NewText
from specpair.balancing.rendezvous import ordered


class Fleet:
    """A fleet at work."""

    def __init__(self, setting: FleetSetting, conversations: Iterator[Conversation], observer: Observer) -> None:
        """`conversations`: in the order of their starts.

        Raises ValueError for a device whose mode lacks a draft model.
        """
        _check(setting)
        self.loop = EventLoop()
        self.nodes = {name: Node(self.loop, name, kind) for name, kind in setting.verifiers.items()}
        self.stopped: list[Node] = []  # those that autoscaling has stopped
        self.under_way = 0  # conversations
        self._setting, self._observer, self._conversations = setting, observer, conversations
        self._policy = setting.policy()
        self._homeless: list[TextRun] = []  # texts for which no node is there
        self._starting = 0  # nodes that are on their way: lost ones that come back, and those that autoscaling starts
        self._started = 0  # nodes that it has started so far
        self._all_come = False
        for failure in setting.failures:
            self.loop.at(failure.at, lambda failure=failure: self._fail(failure))  # type: ignore[misc]
        if setting.autoscaling is not None:
            scaling = setting.autoscaling
            self.loop.at(scaling.every, lambda: self._scale(scaling))
        if setting.look_every:
            self.loop.at(setting.look_every, self._look)
        if setting.sample_every:
            self.loop.at(setting.sample_every, self._sample)
        self._next()

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until all conversations are over, at most up to `until`.

        Raises RuntimeError for a text that is not the target's, and if no verifier is left for one.
        """
        self.loop.run(until, lambda: self._all_come and not self.under_way)

    def stream(self, name: str) -> random.Random:
        """The stream of chance of this name."""
        return random.Random(f"{self._setting.seed}/{name}")

    # Conversations.

    def _next(self) -> None:
        """Wait for the next conversation."""
        conversation = next(self._conversations, None)
        if conversation is None:
            self._all_come = True
            return

        def come() -> None:
            self.under_way += 1
            self._turn(conversation, 0, self._first_prompt(conversation), self._device(conversation))
            self._next()

        self.loop.at(conversation.start, come)

    def _device(self, conversation: Conversation) -> Device:
        devices = self._setting.devices
        shares = list(accumulate(each.share for each in devices))
        return self.stream(f"{conversation.name}/device").choices(devices, cum_weights=shares)[0]

    def _first_prompt(self, conversation: Conversation) -> list[int]:
        shared = self.stream(f"prefix of {conversation.tenant}")
        return [BEGIN, *(shared.randrange(256) for _ in range(conversation.prefix))]

    def _turn(self, conversation: Conversation, number: int, before: list[int], device: Device) -> None:
        """Ask the turn `number`, with the text so far in front, after the time to think."""
        turn, name = conversation.turns[number], f"{conversation.name}/{number}"
        new = turn.prompt_tokens - (conversation.prefix if number == 0 else 0)
        chance = self.stream(f"{name}/prompt")
        prompt = [*before, *(chance.randrange(256) for _ in range(max(new, 1)))]
        text = Text(prompt, self._setting.agreement, self.stream(f"{name}/agreement"))
        prefixes = ((conversation.name,) if number else ()) + ((conversation.tenant,) if conversation.prefix else ())
        new_text = NewText(name, prefixes, float(turn.output_tokens), self._setting.deadline)

        def ask() -> None:
            record = Record(
                conversation.name, number, conversation.tenant, len(prompt), turn.output_tokens, self.loop.now
            )
            self.route(TextRun(self, record, text, new_text, device, self.stream(f"{name}/link"), over))

        def over(run: TextRun) -> None:
            self._observer.record(run.record)
            if number + 1 < len(conversation.turns):
                whole = text.tokens(0, len(prompt) + turn.output_tokens)
                self._turn(conversation, number + 1, whole, device)
            else:
                self.under_way -= 1

        self.loop.at(self.loop.now + turn.think, ask)

    # Nodes.

    def route(self, run: TextRun) -> None:
        """Begin a text, or go on with it, at the node that the policy chooses; without nodes, when there is one.

        Raises RuntimeError if there will be none.
        """
        taking = [each for each in self.nodes.values() if each.up and not each.draining]
        if not taking:
            if not self._starting and self._setting.autoscaling is None:
                raise RuntimeError(f"at {self.loop.now:g} s no verifier is left, and none will come back")
            self._homeless.append(run)
            return
        if not self._setting.look_every:
            for each in taking:
                each.look()
        run.begin(self._policy.choose(ordered(run.new_text.key, taking), run.new_text))

    def _look(self) -> None:
        for each in self.nodes.values():
            if each.up:
                each.look()
        self.loop.at(self.loop.now + self._setting.look_every, self._look)

    def _sample(self) -> None:
        self._observer.sample([each.sample() for each in self.nodes.values()])
        self.loop.at(self.loop.now + self._setting.sample_every, self._sample)

    def _fail(self, failure: Failure) -> None:
        node = self.nodes.get(failure.node)
        if node is None:
            return  # autoscaling has stopped it before
        if failure.back < float("inf"):
            self._starting += 1
            self.loop.at(failure.back, lambda: self._back(node))
        for run in node.fail():
            run.lose()

    def _back(self, node: Node) -> None:
        self._starting -= 1
        node.recover()
        self._settle()

    def _settle(self) -> None:
        """Begin the texts for which there was no node."""
        homeless, self._homeless = self._homeless, []
        for run in homeless:
            self.route(run)

    def _scale(self, scaling: Autoscaling) -> None:
        for name in [name for name, each in self.nodes.items() if each.draining and not each.runs]:
            self.stopped.append(self.nodes.pop(name))
        taking = [each for each in self.nodes.values() if each.up and not each.draining]
        mean = sum(each.queue_time for each in taking) / len(taking) if taking else float("inf")
        lost = sum(not each.up for each in self.nodes.values())
        if mean > scaling.above and len(self.nodes) - lost + self._starting < scaling.most:
            self._starting += 1
            self.loop.at(self.loop.now + scaling.start_delay, lambda: self._join(scaling))
        elif mean < scaling.below and len(taking) > scaling.least:
            min(taking, key=lambda each: len(each.runs)).draining = True
        self.loop.at(self.loop.now + scaling.every, lambda: self._scale(scaling))

    def _join(self, scaling: Autoscaling) -> None:
        self._starting -= 1
        self._started += 1
        name = f"autoscaled-{self._started}"
        self.nodes[name] = Node(self.loop, name, scaling.kind)
        self._settle()


def _check(setting: FleetSetting) -> None:
    """Raise ValueError for a setting that cannot run."""
    kinds = [*setting.verifiers.values(), *([setting.autoscaling.kind] if setting.autoscaling else [])]
    for device in setting.devices:
        if device.mode == "fused" and any(each.draft_cost is None for each in kinds):
            raise ValueError("a device is in mode fused: give each verifier the draft_cost of its draft model")
        if device.mode in ("lockstep", "remote") and device.cost is None:
            raise ValueError(f"a device is in mode {device.mode}: give it the cost of its draft model")
    unknown = next((each.node for each in setting.failures if each.node not in setting.verifiers), None)
    if unknown is not None:
        raise ValueError(f"a failure names the verifier {unknown!r}: there are {', '.join(setting.verifiers)}")
