"""Prompts that are read where nothing else is done; passes that hold prompts and drafts alike, where they are not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lab.simulator.costs.linear import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import DeviceKind, Failure, FleetSetting, Mode, Prefill, VerifierKind
from lab.simulator.virtual.network import Network
from lab.simulator.workload.conversation import Conversation, Turn
from tests.lab.simulator.fleet.fleets import Kept

PROMPT = 1001  # tokens, with the one that begins a text
TARGET, DRAFT = LinearCost(25.0, 0.1, 0.2), LinearCost(4.0, 0.05, 0.1)
DECODER = VerifierKind(TARGET, slots=8, draft_cost=DRAFT)
READER = VerifierKind(TARGET, slots=8, prefill_chunk=2048, reads_only=True)
FAST = Prefill(bytes_per_token=100_000.0, bandwidth=10e9, latency=0.001)
SETTING = FleetSetting({"d": DECODER, "r": READER}, (DeviceKind(Network(0.02), Mode.TARGET, DRAFT),), prefill=FAST)


def run(setting: FleetSetting, texts: int = 1, prompt: int = 1000, turns: int = 1) -> tuple[list[Record], Fleet]:
    kept = Kept()
    coming = (
        Conversation(f"c{number}", 0.05 * number, tuple(Turn(prompt, 40) for _ in range(turns)))
        for number in range(texts)
    )
    fleet = Fleet(setting, coming, kept)
    fleet.run()
    assert len(kept.records) == texts * turns and all(len(each.times) == 40 for each in kept.records)
    return kept.records, fleet


@pytest.mark.parametrize("mode", Mode)
def test_a_decoder_reads_no_prompt_that_another_verifier_has_read(mode: Mode) -> None:
    setting = replace(SETTING, devices=(replace(SETTING.devices[0], mode=mode),))
    (record,), fleet = run(setting)
    decoder, reader = fleet.verifiers.all["d"], fleet.verifiers.all["r"]
    assert record.nodes == ["d"]
    assert reader.tokens == PROMPT and not reader.readings
    assert decoder.tokens < 40 + record.drafted + 40, "but the last token of the prompt"
    reading, moving = TARGET.seconds([(PROMPT, 0)]), 0.001 + (PROMPT - 1) * 100_000.0 / 10e9
    assert record.ttft == pytest.approx(0.02 + reading + moving + TARGET.seconds([(1, PROMPT)]), abs=0.03)


def test_a_slow_transfer_takes_its_time() -> None:
    (fast,), _ = run(SETTING)
    (slow,), _ = run(replace(SETTING, prefill=replace(FAST, bandwidth=1e8)))
    assert slow.ttft - fast.ttft == pytest.approx((PROMPT - 1) * 100_000 * (1 / 1e8 - 1 / 10e9))


def test_prompts_elsewhere_leave_the_texts_under_way_alone() -> None:
    """Beside prompts, tokens come in longer passes; with a reader they do not, and more texts than slots are served."""
    alone = replace(SETTING, verifiers={"d": DECODER}, prefill=None)
    apart, together = (sum(each.tpot for each in run(setting, texts=12)[0]) for setting in (SETTING, alone))
    assert apart < 0.8 * together


def test_the_next_turn_moves_what_is_new() -> None:
    _, fleet = run(SETTING, turns=2)
    prefilling = fleet.verifiers.prefilling
    assert prefilling is not None
    assert PROMPT - 1 + 1000 <= prefilling.moved <= PROMPT - 1 + 1000 + 40
    _, fleet = run(replace(SETTING, prefill=replace(FAST, least=1500)))
    assert fleet.verifiers.all["r"].tokens == 0 and fleet.verifiers.all["d"].tokens > 1000


def test_a_prompt_whose_reader_is_lost_is_read_elsewhere() -> None:
    setting = replace(SETTING, failures=(Failure("r", 0.05, 5.0),))
    (record,), fleet = run(setting)
    assert fleet.verifiers.all["d"].tokens > 1000
    two = replace(setting, verifiers={**SETTING.verifiers, "r2": READER})
    (record,), fleet = run(two)
    assert fleet.verifiers.all["d"].tokens < 200 and fleet.verifiers.all["r2"].tokens == PROMPT
    assert record.ttft < 0.5


@pytest.mark.parametrize("mode", [Mode.TARGET, Mode.REMOTE])
def test_prompts_and_drafts_share_passes_where_one_verifier_does_both(mode: Mode) -> None:
    """The real composer's mixed batches: chunks of a prompt beside tokens and drafts of others."""
    alone = replace(
        SETTING,
        verifiers={"d": replace(DECODER, prefill_chunk=64)},
        devices=(replace(SETTING.devices[0], mode=mode),),
        prefill=None,
    )
    mixed = []
    kept = Kept()
    fleet = Fleet(alone, (Conversation(f"c{n}", 0.3 * n, (Turn(20 + 400 * n, 60),)) for n in range(2)), kept)
    node = fleet.verifiers.all["d"]
    cost = node.kind.cost

    class Watched:
        def seconds(self, sequences: Sequence[tuple[int, int]]) -> float:
            mixed.append([new for new, _ in sequences])
            return cost.seconds(sequences)

    node.kind = replace(node.kind, cost=Watched())
    fleet.run()
    chunks = [batch for batch in mixed if max(batch) > 30]
    assert len(chunks) >= 420 // 64 and all(sum(batch) <= 64 + 17 for batch in chunks[1:])
    assert any(len(batch) == 2 for batch in chunks), "a chunk beside what the other text has judged"
