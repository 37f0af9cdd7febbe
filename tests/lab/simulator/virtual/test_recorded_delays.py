"""Recorded round trips: what files say, how they are replayed, and how mistakes in them are told."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.virtual.network import Direction, Network
from lab.simulator.virtual.recorded_delays import BadDelays, Drawn, Replayed, read_delays

PING = """\
PING example.org (192.0.2.7) 56(84) bytes of data.
64 bytes from 192.0.2.7: icmp_seq=1 ttl=57 time=10.0 ms
no answer yet for icmp_seq=2
64 bytes from 192.0.2.7: icmp_seq=3 ttl=57 time=30 ms

--- example.org ping statistics ---
3 packets transmitted, 2 received, 33% packet loss, time 2003ms
rtt min/avg/max/mdev = 10.000/20.000/30.000/10.000 ms
"""


def read(folder: Path, text: str) -> Drawn | Replayed:
    (folder / "delays.txt").write_text(text, encoding="utf-8")
    return read_delays(folder / "delays.txt")


@pytest.mark.parametrize("text", ["10\n30.0\n", "# ms\n10\n\n30\n", PING])
def test_round_trips_without_times_are_drawn(tmp_path: Path, text: str) -> None:
    delays, rng = read(tmp_path, text), random.Random(0)
    drawn = [delays.at(1.0, rng) for _ in range(400)]
    assert {*drawn} == {0.01, 0.03} and 150 < drawn.count(0.01) < 250
    assert delays.median == 0.02


@pytest.mark.parametrize(
    "text",
    [
        "100, 10\n101; 20\n103\t30\n",
        "PING x\n[100.0] 64 bytes: time=10 ms\n[101.0] a: time=20.0 ms\n[103.0] a: time=30 ms\n",
    ],
)
def test_round_trips_with_times_are_replayed_again_and_again(tmp_path: Path, text: str) -> None:
    delays, rng = read(tmp_path, text), random.Random(0)
    found = [delays.at(at, rng) for at in (0.0, 0.9, 1.0, 2.9, 3.0, 4.4, 4.6, 5.6, 4.5 * 7 + 1.5)]
    assert found == [0.01, 0.01, 0.02, 0.02, 0.03, 0.03, 0.01, 0.02, 0.02]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10\nfast\n", "line 2: 'fast' is no time: give a number that is not negative"),
        ("10\n-3\n", "line 2: '-3' is no time"),
        ("1 2 3\n", "line 1 is not a round trip, '1 2 3': give milliseconds, or seconds,milliseconds"),
        ("0,10\n20\n", "line 2: either all lines say when they were measured, or none does"),
        ("20\n0,10\n", "line 2: either all lines say when they were measured, or none does"),
        ("5,10\n4,20\n", "line 2: 4 s does not come behind 5 s: sort the lines"),
        ("# nothing\n", "has no round trips: give one a line, in milliseconds"),
        ("64 bytes from 192.0.2.7: icmp_seq=1 ttl=57\n", "line 1 is not a round trip"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadDelays) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "delays.txt") in str(caught.value) and complaint in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadDelays, match="cannot be read"):
        read_delays(tmp_path)
    (tmp_path / "delays.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadDelays, match="is not UTF-8 text"):
        read_delays(tmp_path / "delays.txt")


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0.0, 1.0)), min_size=2, max_size=9), st.floats(0.0, 1e4))
def test_at_any_time_there_is_a_round_trip_of_the_record(gaps: list[tuple[int, float]], now: float) -> None:
    times = [float(sum(gap for gap, _ in gaps[: end + 1])) for end in range(len(gaps))]
    assert Replayed(times, [trip for _, trip in gaps]).at(now, random.Random(0)) in [trip for _, trip in gaps]


def test_a_message_takes_half_a_recorded_round_trip() -> None:
    network = Network(0.02, recorded=Replayed([0.0, 1.0], [0.02, 0.06]))
    direction = Direction(network, random.Random(0))
    assert direction.arrival(0.5, 10.0) == pytest.approx(0.51)
    assert direction.arrival(1.5, 10.0) == pytest.approx(1.53)
