"""The real processes: the verifier's application; the shipped pair with a paced draft model, and its user.

Their engines write the texts that the simulator draws, at the pace of a cost.
"""

import atexit
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI

from backends.scripted import ScriptedBackend
from drafter_client import Mode, Options, Pair, Tokens
from drafter_client.draft_sources import Custom
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.costs.cost import LinearCost, PassCost
from lab.simulator.fleet.record import Conversation, Record
from lab.simulator.fleet.text import WRONG, Choices, RuleTarget, Text, text_of
from lab.simulator.paced.engine import Paced
from lab.simulator.virtual.agreement import Agreement
from specpair.child_processes.serving import variables
from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.app import create_app
from verifier_server.settings import from_environment

# Variables of a verifier: a file with the configuration, the number of its kind, a file for how late passes are.
_FILE, _KIND, _LATE = "REALITY_FILE", "REALITY_KIND", "REALITY_LATE"
_NEVER = -30.0  # log of the chance of a token that nothing proposes


class Timed(Paced):
    """An engine at the pace of a cost."""

    def __init__(self, backend: Backend, cost: PassCost, note: Callable[[float], object]) -> None:
        """`note`: called after each pass with its time as a multiple of its cost.

        Raises ValueError for a cost that is not stated as a line.
        """
        if not isinstance(cost, LinearCost):
            raise ValueError("a real engine is paced by a stated cost: cost: {law: linear, …}")
        super().__init__(backend, cost)
        self._note = note

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        began = time.perf_counter()
        logits = super()._forward(batch)
        self._note((time.perf_counter() - began) / self.pace.cost.of(batch))
        return logits


class AgreeingModel(ScriptedBackend):
    """A draft model that agrees with the target by a law, as `lab.simulator.fleet.text.Agreeing`."""

    takes_trees = False

    def __init__(self, slots: int, context_length: int, agreement: Agreement) -> None:
        super().__init__(slots=slots, context_length=context_length)
        self.model_name = "agreeing"
        self.committed = 0  # tokens of the text that the draft continues
        self._agreement = agreement
        self._choices: Choices | None = None
        self._prompt_len = 0

    def begin(self, text: Text) -> None:
        """Draft for this text from now on."""
        self._choices, self._prompt_len = Choices(text, self._agreement), text.prompt_len

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        rows = []
        for slot, start, tokens, logits_from, _ in batch:
            held = self._fed(slot, start, tokens)
            ends = range(start + logits_from + 1, len(held) + 1)
            rows.append(np.stack([self._behind(held[:end]) for end in ends]) if ends else self._none)
        return rows

    @property
    def _none(self) -> Logits:
        return np.empty((0, self.vocabulary.size), dtype=np.float32)

    def _behind(self, held: list[int]) -> Logits:
        """The logits behind these tokens: the log of the chance of the first choice and of the second."""
        row = np.full(self.vocabulary.size, _NEVER, dtype=np.float32)
        choices, at = self._choices, len(held)
        if choices is None or at < self._prompt_len:
            return row
        proposal = choices.proposal(at, at - self.committed, 1)
        first, second = proposal.token, proposal.runner_up
        if held != choices.tokens(0, at):
            first, second = WRONG, WRONG + 1
        assert second is not None
        chance = min(max(proposal.confidence, 0.01), 0.999)
        rest = 1.0 - chance
        row[:256] = np.log(rest * 0.5 / 254)
        row[second] = np.log(min(rest, chance) * 0.5)
        row[first] = np.log(chance)
        return row


class Drafts(ModelDrafter):
    """Drafts with an `AgreeingModel`, and passes it the text that the draft continues, from which its law counts."""

    def __init__(self, model: AgreeingModel, engine: Backend, sampling: Sampling, vocabulary_size: int) -> None:
        super().__init__(engine, sampling, vocabulary_size)
        self._model = model

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        self._model.committed = len(text)
        return super().expand(text, tails, runners_up)


def environment(configuration: Path, kind: int, late: Path) -> dict[str, str]:
    """The environment variables of a verifier.

    `configuration`: a file with one, in JSON.
    `kind`: number among its kinds.
    `late`: a file that gets a line a pass: the time that it took, as a multiple of what it costs.
    """
    read = Configuration.model_validate_json(configuration.read_text())
    chunk = read.devices.verifiers[kind].prefill_chunk
    named = {_FILE: configuration, _KIND: kind, _LATE: late}
    return variables(backend="scripted", prefill_chunk=chunk, max_queue=4096, **named)


def application() -> FastAPI:
    """A verifier with these variables."""
    read = Configuration.model_validate_json(Path(os.environ[_FILE]).read_text())
    kind = read.devices.verifiers[int(os.environ[_KIND])]
    target = RuleTarget(slots=kind.slots, context_length=kind.longest, max_batch_tokens=kind.batch_tokens)
    target.takes_trees = False  # then drafters that ship send chains, as simulated ones do unless their file says tree
    late = open(os.environ[_LATE], "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives
    engine = Timed(target, kind.pass_cost, lambda multiple: late.write(f"{multiple:.5f}\n"))
    return create_app(from_environment(), engine)


BRANCHES = 6
_CONTEXT = 32_768  # tokens
_START = 240.0  # seconds that a verifier may take to start


class PacedDrafts:
    """The source of drafts: a paced model."""

    def __init__(self, configuration: Configuration) -> None:
        kind = configuration.devices.drafters[0]
        self.model = AgreeingModel(BRANCHES, _CONTEXT, kind.agreement.built)
        self.late: list[float] = []  # the time of each pass of the model, as a multiple of what it costs
        self.engine = Timed(self.model, kind.pass_cost, self.late.append)

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
