"""Recorded workloads: those of traces, and conversations as they were written."""

import random
import tracemalloc
from itertools import islice, pairwise
from pathlib import Path

import pytest

from lab.request_traces.request import BadTrace
from lab.simulator.workload.arrivals import Gamma
from lab.simulator.workload.conversation import Conversation, Turn
from lab.simulator.workload.distributions import Exponential, Uniform
from lab.simulator.workload.replayed import RecordedConversations, Replayed, write
from lab.simulator.workload.synthetic import Open
from lab.simulator.workload.tenants import Independent, Tenant
from tests.paths import ROOT

NO_CHANCE = random.Random(0)
PUBLIC = ROOT.parent / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_code.csv"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 requests of a made-up service in the form of Azure's traces, two seconds apart."""
    file = tmp_path_factory.mktemp("trace") / "trace.csv"
    rows = [f"2024-02-29 23:59:{10 + 2 * n:02}.2500000,{100 + n},{n % 7}" for n in range(20)]
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return file


def test_requests_of_a_trace_come_at_their_times(trace: Path) -> None:
    found = list(Replayed(trace).conversations(NO_CHANCE))
    assert [each.start for each in found] == pytest.approx([2.0 * n for n in range(20)])
    assert [each.turns for each in found] == [(Turn(100 + n, max(1, n % 7)),) for n in range(20)]
    assert len({each.name for each in found}) == 20


def test_a_trace_is_sped_up_and_begins_anew(trace: Path) -> None:
    found = list(islice(Replayed(trace, speed=2.0, repeat=True).conversations(NO_CHANCE), 50))
    assert [each.start for each in found] == pytest.approx([1.0 * n for n in range(50)])
    assert len({each.name for each in found}) == 50
    assert found[20].turns == found[0].turns


def test_a_trace_of_one_moment_repeats_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text('{"seconds": 5, "input_tokens": 1, "output_tokens": 1, "session": "s", "tenant": "t"}\n')
    first, second = islice(Replayed(file, repeat=True).conversations(NO_CHANCE), 2)
    assert (first.start, first.name, first.tenant) == (0.0, "s-0", "t")
    assert second.start == 1.0


def test_conversations_that_were_written_are_read_again(tmp_path: Path) -> None:
    tenant = Tenant(Independent(Uniform(1, 99), Uniform(1, 99)), "é", 1.0, Uniform(1, 4), Exponential(3.0), prefix=5)
    drawn = list(islice(Open(Gamma(2.0, 2.0), [tenant]).conversations(random.Random("a")), 40))
    file = tmp_path / "conversations.jsonl"
    file.write_text("".join(write(drawn)), encoding="utf-8")
    assert list(RecordedConversations(file).conversations(NO_CHANCE)) == drawn


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"name": "b", "start": 1}', "line 2: turns: Field required"),
        ('{"name": "b", "start": 3, "turns": []}', "line 2: turns: a conversation has at least one"),
        (next(write([Conversation("b", 1.0, (Turn(1, 1),))])), r"line 2: start: 1\.0 is before the line above, 2\.0"),
        ("{", "line 2: .*JSON"),
    ],
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text("".join(write([Conversation("a", 2.0, (Turn(1, 1),))])) + line)
    with pytest.raises(BadTrace, match=message):
        list(RecordedConversations(file).conversations(NO_CHANCE))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match=r"gone\.csv cannot be read: No such file"):
        next(Replayed(tmp_path / "gone.csv").conversations(NO_CHANCE))


def test_memory_does_not_grow_with_a_trace(tmp_path: Path) -> None:
    """Twice as long a trace takes no more of it, but for a margin."""

    def peak(count: int) -> int:
        file = tmp_path / f"{count}.jsonl"
        with file.open("w") as lines:
            lines.writelines(f'{{"seconds": {n}, "input_tokens": 9, "output_tokens": 9}}\n' for n in range(count))
        tracemalloc.start()
        try:
            assert sum(1 for _ in Replayed(file).conversations(NO_CHANCE)) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(3000)  # what the first one allocates may stay
    assert peak(3000) < 1.2 * peak(1500)


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public trace is not there")
def test_the_public_trace_is_replayed_in_order() -> None:
    found = list(Replayed(PUBLIC).conversations(NO_CHANCE))
    assert len(found) == 8819
    assert found[0].start == 0.0 and found[0].turns == (Turn(4808, 10),)
    assert all(one.start <= other.start for one, other in pairwise(found))
