"""Ours against llama-server with real models: what is kept, and what is said of it. Nothing is written here."""

from pathlib import Path

import pytest

from drafter_client.metrics.statistics import Stats
from lab.benchmarks.harness.texts import Written
from lab.benchmarks.llama_server.settings import ALONE
from lab.benchmarks.real_pair.compute_table import COLD, COPY, FILE, TARGET, Place, keep, mean, ratios, read, tables


def kept(file: Path, kind: str, repeat: int, way: str, seconds: float) -> None:
    keep(file, Place(kind, 0.0, repeat), way, Written(list(range(11)), 50.0, seconds, Stats(drafted=8, accepted=6)))


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    assert read(file) == []
    kept(file, "code", 3, ALONE, 2.0)
    [text] = read(file)
    assert (text.place, text.way, text.rate, text.first) == (Place("code", 0.0, 3), ALONE, 5.0, 0.05)
    assert (text.tokens, text.drafted, text.accepted) == (11, 8, 6)


def test_figures_are_medians_of_ratios_to_llama_server_alone_in_the_same_repeat(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    for repeat, (alone, theirs, mine) in enumerate([(4.0, 2.0, 1.0), (8.0, 4.0, 2.0), (4.0, 4.0, 4.0)]):
        kept(file, "code", repeat, ALONE, alone)
        kept(file, "code", repeat, "draft-simple 3", theirs)
        kept(file, "code", repeat, "ours, remote", mine)
    kept(file, "story", 0, ALONE, 4.0)
    kept(file, "story", 0, "draft-simple 3", 8.0)
    kept(file, "story", 0, "ours, remote", 4.0)
    kept(file, "story", 0, "ours, fused", 4.0)
    found = ratios(read(file))
    assert found["draft-simple 3"] == {"code": 2.0, "story": 0.5}
    assert mean(found["ours, remote"]) == pytest.approx(2.0)
    assert "ours, fused" not in found, "it has not written every kind"


def test_the_best_of_both_sides_and_every_mode_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    rates = {ALONE: (1.0, 1.0), "draft-simple 3": (1.5, 1.2), "ours, remote": (3.0, 1.2), TARGET: (1.0, 1.25)}
    for way, each in (rates | {COLD: (2.7, 1.2)}).items():
        for kind, rate in zip(("code", "story"), each, strict=True):
            kept(file, kind, 0, way, 10.0 / rate)
    said = "\n".join(tables(read(file)))
    assert "ours, remote over draft-simple 3: 1.41, least 1.00 (story)" in said
    assert "ours, remote over ours, target: 1.70, least 0.96 (story)" in said
    assert "ours, auto, cold over ours, remote: 0.95, least 0.90 (code)" in said


def test_their_best_is_said_with_the_draft_models_file_and_with_its_copy(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    rates = {ALONE: 1.0, f"p-min 0.5, {FILE}": 1.5, f"p-min 0.5, {COPY}": 2.0, "ours, remote": 3.0}
    for repeat in range(2):
        for way, rate in rates.items():
            kept(file, "code", repeat, way, 10.0 / rate)
    kept(file, "code", 0, f"draft-simple 8, {COPY}", 10.0 / 2.5)
    said = "\n".join(tables(read(file)))
    assert f"ours, remote over p-min 0.5, {FILE}: 2.00" in said
    assert f"ours, remote over p-min 0.5, {COPY}: 1.50" in said, "one repeat is no median of two"
    assert "2.50  of 1\n" in said
