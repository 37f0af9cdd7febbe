"""Disaggregated prefill: verifiers that only read prompts, whose KV cache then goes to the verifier that decodes.

No code that ships moves KV caches. At both ends is the real scheduler: the reader's batches prompts, and the decoder's
finds the prompt among the texts that its slots keep, so its first pass reads the last token alone. What is added is the
transfer between them, all transfers side by side. Where no slot is free when a cache arrives, the cache waits in the
decoder's host: the scheduler feeds the prompt in chunks, which take no time. Times in seconds.
"""

from collections.abc import Callable, Sequence

from lab.simulator.fleet.node import Node
from lab.simulator.fleet.settings import Prefill
from lab.simulator.virtual.timeline import UNTOLD, What
from lab.simulator.virtual.world import EventLoop, or_raise
from specpair.engines.backend import Entry
from specpair.protocol.errors import Overloaded
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

_SPEC = TextSpec.of(Sampling())


class Prefilling:
    """Has prompts read where nothing else is done."""

    def __init__(self, loop: EventLoop, setting: Prefill, readers: Callable[[], Sequence[Node]]) -> None:
        """`readers`: those that read prompts now."""
        self.moved = 0  # tokens whose KV cache was sent
        self._loop, self._setting, self._readers = loop, setting, readers
        self._count = 0

    def read(self, decoder: Node, name: str, tokens: list[int], then: Callable[[], object]) -> None:
        """Have `tokens` read for the session `name`, and call `then` when `decoder` has their KV cache; at once if it
        has most of them, or if there is no reader."""
        held = _kept(decoder, tokens)
        readers = self._readers()
        lacks = len(tokens) - 1 - held
        if not readers or lacks < self._setting.least:
            then()
            return
        for each in readers:
            each.look()
        reader = min(readers, key=lambda each: (each.queue_time, len(each.readings)))
        self._count += 1
        timeline = decoder.timelines.get(name)
        session = Session(f"{name}/prefill-{self._count}", [*tokens], len(tokens), _SPEC, len(tokens) + 1, ())

        def arrived() -> None:
            _take_in(decoder, name, tokens)
            then()

        def answered(answer: Answer) -> None:
            del reader.readings[session.id]
            reader.timelines.pop(session.id, None)
            reader.verifier.scheduler.forget(session)
            self.moved += lacks
            seconds = self._setting.latency + lacks * self._setting.bytes_per_token / self._setting.bandwidth
            self._loop.at(self._loop.now + seconds, (timeline or UNTOLD).until(What.MOVE, arrived))

        if timeline is not None:
            reader.timelines[session.id] = timeline
        reader.readings[session.id] = lambda: self.read(decoder, name, tokens, then)
        self._submit(reader, Request(session, Draft(len(tokens)), or_raise(answered)))

    def _submit(self, reader: Node, request: Request) -> None:
        """Submit a request, again and again while the reader is overloaded."""
        if request.session.id not in reader.readings:
            return  # it was lost meanwhile
        try:
            reader.verifier.scheduler.submit(request, self._loop.now)
        except Overloaded as refused:
            pause = refused.details["retry_after"]
            self._loop.at(self._loop.now + pause, lambda: self._submit(reader, request))
        else:
            reader.verifier.look()


def _kept(node: Node, tokens: list[int]) -> int:
    """How many of the first of `tokens` a slot holds that no session has."""
    slots, session = node.verifier.scheduler.slots, _text(tokens)
    if not slots.acquire(session, lambda owner: False):
        return 0
    held = slots.held(session)
    (slots.retire if held else slots.drop)(session)
    return held


def _take_in(node: Node, name: str, tokens: list[int]) -> None:
    """Put the KV cache of all of `tokens` but the last into a slot, for the session `name`."""
    scheduler, session = node.verifier.scheduler, _text(tokens)
    if not scheduler.slots.acquire(session, lambda owner: False):
        node.loaded[name] = len(tokens) - 1
        return
    backend, number = scheduler.backend, scheduler.slots[session].number
    for start in range(scheduler.slots.held(session), len(tokens) - 1, backend.max_batch_tokens):
        part = tokens[start : min(start + backend.max_batch_tokens, len(tokens) - 1)]
        backend.extend([Entry(number, start, part, len(part))])
    scheduler.slots.fed(session)
    scheduler.slots.retire(session)


def _text(tokens: list[int]) -> Session:
    """A session that only holds a text."""
    return Session("", tokens, len(tokens), _SPEC, len(tokens) + 1, ())
