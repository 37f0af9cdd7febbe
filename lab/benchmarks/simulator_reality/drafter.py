"""A real drafter in a process of its own: the pair that ships, with a paced draft model, and one user at a time."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from drafter_client import Mode, Options, Pair, Tokens
from drafter_client.draft_sources import Custom
from lab.benchmarks.simulator_reality.engines import AgreeingModel, Drafts, Timed
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.conversation import Conversation
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.text import Text, text_of
from specpair.drafters.base import Drafter
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.sampling import Sampling

BRANCHES = 6
_CONTEXT = 32_768  # tokens
_START = 240.0  # seconds that a verifier may take to start


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins: `now` is 0 at `zero` of the clock, and ends at `end`."""

    zero: float
    end: float


@dataclass(frozen=True, slots=True)
class Work:
    """A conversation for this drafter. `asked`: when its user has asked for the first turn."""

    conversation: Conversation
    asked: float


@dataclass(frozen=True, slots=True)
class Report:
    """What the drafter did. `late`: the time of each pass of its model, as a multiple of what it costs."""

    late: list[float]


class Paced:
    """The source of drafts: a paced model."""

    def __init__(self, configuration: Configuration) -> None:
        kind = configuration.devices.drafters[0]
        self.model = AgreeingModel(BRANCHES, _CONTEXT, kind.agreement.built())
        self.late: list[float] = []
        self.engine = Timed(self.model, kind.pass_cost(), self.late.append)

    def drafter(self, vocabulary: Vocabulary, sampling: Sampling) -> Drafter:
        """The drafter of the next text."""
        for slot in range(BRANCHES):
            self.engine.release(slot)
        return Drafts(self.model, self.engine, sampling, vocabulary.size)


class User:
    """The user of one drafter."""

    def __init__(self, configuration: Configuration, seed: int, pair: Pair, paced: Paced, begin: Begin) -> None:
        self._seed, self._pair, self._paced, self._begin = seed, pair, paced, begin
        self._options = _options(configuration)

    def converse(self, work: Work, tell: Callable[[Record], object]) -> bool:
        """Have a conversation. Returns False if the run ended before it was over."""
        conversation = work.conversation
        before: list[int] = []
        for number, turn in enumerate(conversation.turns):
            if number:
                time.sleep(turn.think)
            asked = self._now() if number else work.asked
            text = text_of(conversation, number, before, self._stream)
            length = text.prompt_len
            record = Record(conversation.name, number, conversation.tenant, length, turn.output_tokens, asked)
            whole = self._write(text, record)
            tell(record)
            if not whole:
                return False
            before = text.tokens(0, length + turn.output_tokens)
        return True

    def _write(self, text: Text, record: Record) -> bool:
        self._paced.model.begin(text)
        prompt = text.tokens(0, text.prompt_len)
        options = self._options | {"max_tokens": record.output_tokens}
        received = 0
        with closing(self._pair.generate(prompt, Options(**options))) as events:
            for event in events:
                if isinstance(event, Tokens):
                    now = self._now()
                    received += len(event.tokens)
                    record.times += [now] * len(event.tokens)
                    if now > self._begin.end:
                        return False
        if received != record.output_tokens:
            raise RuntimeError(f"{received} tokens came, {record.output_tokens} should have")
        written = [*prompt, *events.stats.token_ids]
        if written != text.tokens(0, len(written)):
            raise RuntimeError(f"the text of {record.conversation}, turn {record.turn}, is not the target's")
        record.drafted, record.accepted = events.stats.drafted, events.stats.accepted
        return True

    def _stream(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}/{name}")

    def _now(self) -> float:
        return time.monotonic() - self._begin.zero


def _options(configuration: Configuration) -> dict[str, Any]:
    mode, length = configuration.mode, configuration.gamma
    if length == "tree":
        raise ValueError("a real drafter drafts chains of a constant length, or as its controller decides")
    known = {"target": Mode.TARGET, "fused": Mode.FUSED, "lockstep": Mode.REMOTE, "remote": Mode.REMOTE}
    given: dict[str, Any] = {"temperature": 0.0, "seed": 0, "lookup": False, "mode": known[mode]}
    if mode == "lockstep":
        given["lockstep"] = True
    if isinstance(length, int):
        given["draft_n"] = length
    return given


def main(url: str, configuration: Configuration, seed: int, conductor: Connection) -> None:
    """Connect, say that it is ready, and do the work that the conductor sends. None ends it."""
    paced = Paced(configuration)
    drafts = configuration.mode in ("lockstep", "remote")
    source = Custom(paced.drafter, "agreeing") if drafts else None
    with Pair(url, source, branches=BRANCHES, start_patience=_START) as pair:
        conductor.send(None)
        begin = conductor.recv()
        user = User(configuration, seed, pair, paced, begin)
        while (work := conductor.recv()) is not None:
            over = user.converse(work, conductor.send)
            conductor.send(None)
            if not over:
                break
        conductor.send(Report(paced.late))
