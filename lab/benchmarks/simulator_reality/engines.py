"""The engines of the real processes, and the verifier's application.

They write the texts that the simulator draws, at the pace of a cost.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from fastapi import FastAPI

from backends.scripted import ScriptedBackend
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.costs.cost import LinearCost, PassCost
from lab.simulator.fleet.text import WRONG, Choices, RuleTarget, Text
from lab.simulator.paced.engine import Paced
from lab.simulator.virtual.agreement import Agreement
from specpair.child_processes.serving import variables
from specpair.drafters.base import Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.app import create_app
from verifier_server.flags import from_environment

# Variables of a verifier: a file with the configuration, the number of its kind, a file for how late passes are.
_FILE, _KIND, _LATE = "REALITY_FILE", "REALITY_KIND", "REALITY_LATE"
_NEVER = -30.0  # log of the chance of a token that nothing proposes


class Timed(Paced):
    """An engine at the pace of a cost."""

    def __init__(self, backend: Backend, cost: PassCost, note: Callable[[float], object]) -> None:
        """`note`: called behind each pass with the time that it took, as a multiple of what it costs.

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
    """A draft model that agrees with the target by a law, as `lab.simulator.fleet.text.Agreeing` does."""

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
    """Drafts with an `AgreeingModel`, which is told what the draft continues, since its law counts from there on."""

    def __init__(self, model: AgreeingModel, engine: Backend, sampling: Sampling, vocabulary_size: int) -> None:
        super().__init__(engine, sampling, vocabulary_size)
        self._model = model

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        self._model.committed = len(text)
        return super().expand(text, tails, runners_up)


def environment(configuration: Path, kind: int, late: Path) -> dict[str, str]:
    """The variables of a verifier.

    `configuration`: a file with one, in JSON.
    `kind`: number among its kinds.
    `late`: a file that gets a line a pass: the time that it took, as a multiple of what it costs.
    """
    read = Configuration.model_validate_json(configuration.read_text())
    chunk = read.devices.verifiers[kind].prefill_chunk
    named = {_FILE: configuration, _KIND: kind, _LATE: late}
    return variables(backend="scripted", prefill_chunk=chunk, max_queue=4096, **named)


def application() -> FastAPI:
    """A verifier by these variables."""
    read = Configuration.model_validate_json(Path(os.environ[_FILE]).read_text())
    kind = read.devices.verifiers[int(os.environ[_KIND])]
    target = RuleTarget(slots=kind.slots, context_length=kind.longest(), max_batch_tokens=kind.batch_tokens)
    target.takes_trees = False  # then drafters that ship send chains, as simulated ones do unless their file says tree
    late = open(os.environ[_LATE], "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives
    engine = Timed(target, kind.pass_cost(), lambda multiple: late.write(f"{multiple:.5f}\n"))
    return create_app(from_environment(), engine)
