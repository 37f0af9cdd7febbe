"""A fleet on one clock: conversations come, a router chooses nodes, nodes fail, start and stop. Times in seconds."""

import random
from collections.abc import Iterator
from itertools import accumulate

from backends.scripted import BEGIN
from simulator.drafting.engine import DraftEngine
from simulator.drafting.learnt import Learnt
from simulator.fleet.nodes import Nodes
from simulator.fleet.observer import Observer
from simulator.fleet.record import Record
from simulator.fleet.run import TextRun
from simulator.fleet.settings import Device, FleetSetting
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
        self._setting, self._observer, self._conversations = setting, observer, conversations
        self._homeless: list[TextRun] = []  # texts for which no node is there
        self.verifiers = Nodes(self.loop, setting, self.stream, observer, self._settle)
        self.under_way = 0  # conversations
        self._policy = setting.policy()
        self._all_come = False
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
            device = self._device(conversation)
            learnt = Learnt(None if device.cost is None else DraftEngine(self.loop, device.cost))
            self._turn(conversation, 0, self._first_prompt(conversation), device, learnt)
            self._next()

        self.loop.at(conversation.start, come)

    def _device(self, conversation: Conversation) -> Device:
        devices = self._setting.devices
        shares = list(accumulate(each.share for each in devices))
        return self.stream(f"{conversation.name}/device").choices(devices, cum_weights=shares)[0]

    def _first_prompt(self, conversation: Conversation) -> list[int]:
        shared = self.stream(f"prefix of {conversation.tenant}")
        return [BEGIN, *(shared.randrange(256) for _ in range(conversation.prefix))]

    def _turn(self, conversation: Conversation, number: int, before: list[int], device: Device, learnt: Learnt) -> None:
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
            self.route(TextRun(self, record, text, new_text, device, learnt, self.stream(f"{name}/link"), over))

        def over(run: TextRun) -> None:
            self._observer.record(run.record)
            if number + 1 < len(conversation.turns):
                whole = text.tokens(0, len(prompt) + turn.output_tokens)
                self._turn(conversation, number + 1, whole, device, learnt)
            else:
                self.under_way -= 1

        self.loop.at(self.loop.now + turn.think, ask)

    # Verifiers.

    def route(self, run: TextRun) -> None:
        """Begin a text, or go on with it, at the node that the policy chooses; without nodes, when there is one.

        Raises RuntimeError if there will be none.
        """
        taking = self.verifiers.taking()
        if not taking:
            if not self.verifiers.any_to_come:
                raise RuntimeError(f"at {self.loop.now:g} s no verifier is left, and none will come back")
            self._homeless.append(run)
            return
        if not self._setting.look_every:
            for each in taking:
                each.look()
        run.begin(self._policy.choose(ordered(run.new_text.key, taking), run.new_text))

    def _settle(self) -> None:
        """Begin the texts for which there was no node."""
        homeless, self._homeless = self._homeless, []
        for run in homeless:
            self.route(run)


def _check(setting: FleetSetting) -> None:
    """Raise ValueError for a setting that cannot run."""
    kinds = [*setting.verifiers.values(), *(each.kind for each in setting.autoscaling)]
    for device in setting.devices:
        if device.mode == "fused" and any(each.draft_cost is None for each in kinds):
            raise ValueError("a device is in mode fused: give each verifier the draft_cost of its draft model")
        if device.mode in ("lockstep", "remote") and device.cost is None:
            raise ValueError(f"a device is in mode {device.mode}: give it the cost of its draft model")
    unknown = next((each.node for each in setting.failures if each.node not in setting.verifiers), None)
    if unknown is not None:
        raise ValueError(f"a failure names the verifier {unknown!r}: there are {', '.join(setting.verifiers)}")
