"""A real drafter in a process of its own: the pair that ships, with a paced draft model, and one user at a time."""

import atexit
import random
import time
from contextlib import closing
from multiprocessing.synchronize import Barrier
from typing import Any

from drafter_client import Mode, Options, Pair, Tokens
from drafter_client.draft_sources import Custom
from lab.benchmarks.simulator_reality.engines import AgreeingModel, Drafts, Timed
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.record import Conversation, Record
from lab.simulator.fleet.text import Text, text_of
from specpair.drafters.base import Drafter
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.sampling import Sampling

BRANCHES = 6
_CONTEXT = 32_768  # tokens
_START = 240.0  # seconds that a verifier may take to start


class PacedDrafts:
    """The source of drafts: a paced model."""

    def __init__(self, configuration: Configuration) -> None:
        kind = configuration.devices.drafters[0]
        self.model = AgreeingModel(BRANCHES, _CONTEXT, kind.agreement.built())
        self.late: list[float] = []  # the time of each pass of the model, as a multiple of what it costs
        self.engine = Timed(self.model, kind.pass_cost(), self.late.append)

    def drafter(self, vocabulary: Vocabulary, sampling: Sampling) -> Drafter:
        """The drafter of the next text."""
        for slot in range(BRANCHES):
            self.engine.release(slot)
        return Drafts(self.model, self.engine, sampling, vocabulary.size)


class Laptop:
    """The drafter, and its user."""

    def __init__(self, url: str, configuration: Configuration, seed: int) -> None:
        drafts = configuration.mode in ("lockstep", "remote")
        self.paced = PacedDrafts(configuration)
        source = Custom(self.paced.drafter, "agreeing") if drafts else None
        self.pair = Pair(url, source, branches=BRANCHES, start_patience=_START)
        self._seed, self._options = seed, _options(configuration)

    def converse(self, conversation: Conversation, asked: float, zero: float, end: float) -> list[Record]:
        """Have a conversation, until the run ends. `asked`: when its user has asked for the first turn."""
        records: list[Record] = []
        before: list[int] = []
        for number, turn in enumerate(conversation.turns):
            if number:
                time.sleep(turn.think)
                asked = time.monotonic() - zero
            text = text_of(conversation, number, before, lambda name: random.Random(f"{self._seed}/{name}"))
            length = text.prompt_len
            record = Record(conversation.name, number, conversation.tenant, length, turn.output_tokens, asked)
            records.append(record)
            if not self._write(text, record, zero, end):
                break
            before = text.tokens(0, length + turn.output_tokens)
        return records

    def _write(self, text: Text, record: Record, zero: float, end: float) -> bool:
        """Returns False if the run ended before the text was over."""
        self.paced.model.begin(text)
        prompt = text.tokens(0, text.prompt_len)
        options = self._options | {"max_tokens": record.output_tokens}
        with closing(self.pair.generate(prompt, Options(**options))) as events:
            for event in events:
                if isinstance(event, Tokens):
                    now = time.monotonic() - zero
                    record.times += [now] * len(event.tokens)
                    if now > end:
                        return False
        if len(record.times) != record.output_tokens:
            raise RuntimeError(f"{len(record.times)} tokens came, {record.output_tokens} should have")
        written = [*prompt, *events.stats.token_ids]
        if written != text.tokens(0, len(written)):
            raise RuntimeError(f"the text of {record.conversation}, turn {record.turn}, is not the target's")
        record.drafted, record.accepted = events.stats.drafted, events.stats.accepted
        return True


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


_laptop: Laptop  # of this process


def begin(url: str, configuration: Configuration, seed: int, ready: Barrier) -> None:
    """Make this process a drafter: connect, and wait until all of them are ready."""
    global _laptop
    _laptop = Laptop(url, configuration, seed)
    atexit.register(_laptop.pair.close)
    ready.wait()


def converse(conversation: Conversation, asked: float, zero: float, end: float) -> tuple[list[Record], list[float]]:
    """Have a conversation in this process. `zero`: when the run began, by the clock; other times count from there.

    Returns the records, and how late the model's passes were.
    """
    records = _laptop.converse(conversation, asked, zero, end)
    late, _laptop.paced.late[:] = [*_laptop.paced.late], []
    return records, late
