"""A drafter notices that its draft model and the verifier's passes need the same cores, and times its draft model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.machine import cores_to_use, machine_id
from backends.scripted import ByteVocabulary, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair, text_run
from drafter_client.draft_sources import OpenedSource
from drafter_client.generation.speculative_decoding import SpeculativeRun
from drafter_client.modes.auto import ModeSelection
from specpair.engines.errors import first_line
from specpair.speculation.policy.schedule import IN_TURNS, Mechanisms
from tests.drafter_client.http.bodies import model_info
from tests.drafter_client.support import Verifier

CORES = cores_to_use()
TOY = DraftModel(Path("1"), "scripted")


@pytest.mark.parametrize(
    ("machine", "passes", "steps", "shared"),
    [
        (machine_id(), CORES, CORES, True),
        (machine_id(), CORES, 1, True),
        ("another", CORES, CORES, False),  # an address of this machine may lead to another one, through a tunnel
        (None, CORES, CORES, False),  # a verifier that does not say
        (machine_id(), 0, CORES, False),  # the verifier's passes run on a GPU
        (machine_id(), CORES, 0, False),  # the draft model runs on one, or nothing is computed
    ],
)
def test_cores_are_shared_on_one_machine_with_fewer_than_both_ends_use(
    machine: str | None, passes: int, steps: int, shared: bool
) -> None:
    info = model_info(machine=machine, threads=passes)
    assert (
        OpenedSource(
            "draft", info, ByteVocabulary(), [], lambda *_: pytest.fail("nothing has changed"), threads=steps
        ).shares_cores
        is shared
    )


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.AUTO])
def test_on_shared_cores_auto_drafts_without_self_continuation(
    verifier: Verifier, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Mechanisms] = []

    def speculating(*, mechanisms: Mechanisms, **how: Any) -> SpeculativeRun:
        used.append(mechanisms)
        return SpeculativeRun(mechanisms=mechanisms, **how)

    monkeypatch.setattr(text_run, "SpeculativeRun", speculating)
    monkeypatch.setattr(OpenedSource, "shares_cores", True)
    monkeypatch.setattr(ModeSelection, "next", lambda *_, **__: Mode.REMOTE)
    with Pair(verifier.url, TOY) as pair:
        assert len(pair.generate("a", Options(max_tokens=20, mode=mode)).read().token_ids) == 20
    assert used == [replace(IN_TURNS, self_continue=mode is Mode.REMOTE)]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA error: an illegal memory access\nmore")], ids=repr)
def test_a_draft_model_that_cannot_be_timed_does_not_keep_a_pair_from_being_made(
    verifier: Verifier, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ScriptedBackend, "extend", fail)
    with Pair(verifier.url, TOY) as pair:
        assert pair.paired.drafting.times is None
    told = [record.getMessage() for record in caplog.records if record.name == "specpair.drafter"]
    assert told == [f"the draft model could not be timed: {first_line(error)}"]
