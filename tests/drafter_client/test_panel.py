"""The panel at the end of a run, printed into a console of fixed width and read as plain text."""

import io
from collections import Counter

import pytest
from rich.console import Console

from drafter_client.panel import legend, show
from drafter_client.stats import Baseline, Stats, Times
from speculation.operation import Operation


def _lines(stats: Stats) -> list[str]:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    show(stats, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [" ".join(line.strip("│╭╰╮╯─ ").split()) for line in text.splitlines()]


def _stats(**changes: object) -> Stats:
    stats = Stats(
        model="big-7b",
        draft_model="small-1b",
        prompt_tokens=12,
        token_ids=list(range(100)),
        rounds=25,
        drafted=96,
        accepted=75,
        ttft_ms=41.6,
        total_ms=2000.0,
        times=Times(prefill=40.0, drafting=400.0, network=800.0, queue=60.0, verify=700.0),
        bytes_sent=3072,
        bytes_received=10240,
        finish_reason="length",
    )
    for name, value in changes.items():
        setattr(stats, name, value)
    return stats


def test_the_figures_of_a_run() -> None:
    assert _lines(_stats()) == [
        "small-1b drafts for big-7b",
        "prompt 12 tokens rounds 25",
        "generated 100 tokens drafted 96",
        "ended by length accepted 75",
        "TTFT 42 ms acceptance rate 78.1%",
        "speed 50.00 tokens/s mean acceptance length 4.00",
        "sent 3.0 KiB received 10.0 KiB",
        "",
        "prefill 40 ms 2% █",
        "drafting 400 ms 20% ██████",
        "network 800 ms 40% ████████████",
        "queue 60 ms 3% █",
        "verify 700 ms 35% ██████████",
        "",
    ]


def test_drafts_that_were_looked_up_have_a_line_where_there_are_any() -> None:
    assert "looked up 7 drafts of these accepted 5" in _lines(_stats(looked_up=7, looked_up_accepted=5))


def test_a_text_that_was_drawn_can_be_drawn_again() -> None:
    assert "temperature 0.8 seed 77" in _lines(_stats(sampling={"temperature": 0.8, "seed": 77}))
    assert not any("seed" in line for line in _lines(_stats(sampling={"temperature": 0.0, "seed": 77})))


def test_how_the_two_worked_together() -> None:
    operations = Counter({Operation.OVERLAPPED: 80, Operation.SELF_CONTINUED: 20})
    lines = _lines(_stats(guesses=31, own=24, misses=40, prepared=30, operations=operations))
    assert lines[6:8] == [
        "operation overlapped 80%, self-continued 20% drafts ready after a miss 75.0%",
        "target by itself 24 tokens guesses out of date 6",
    ]


def test_one_way_of_working_needs_no_shares() -> None:
    lines = _lines(_stats(guesses=25, operations=Counter({Operation.LOCKSTEP: 99})))
    assert lines[6:8] == [
        "operation lockstep drafts ready after a miss -",
        "target by itself 0 tokens guesses out of date 0",
    ]


def test_a_target_that_did_it_all_by_itself_is_told_as_such() -> None:
    lines = _lines(_stats(rounds=0, drafted=0, own=99, operations=Counter({Operation.SELF_CONTINUED: 99})))
    assert "operation self-continued drafts ready after a miss -" in lines
    assert "target by itself 99 tokens guesses out of date 0" in lines


@pytest.mark.parametrize(
    ("same", "words"),
    [(True, "same text"), (False, "the text differs after a near-tie of two tokens (README: near-ties)")],
)
def test_the_baseline_stands_below_with_the_speed_up(same: bool, words: str) -> None:
    lines = _lines(_stats(baseline=Baseline(20.0, 39.0, 100, same)))
    assert lines[-3:] == ["target alone, measured 20.0 tokens/s TTFT 39 ms speed-up 2.50x", words, ""]


def test_what_is_not_known_is_a_dash_and_not_a_fault() -> None:
    lines = _lines(Stats(model="big-7b"))
    assert lines[0] == "big-7b"
    assert "ended by interrupt accepted 0" in lines
    assert "TTFT 0 ms acceptance rate -" in lines
    assert "speed - mean acceptance length -" in lines
    assert "prefill 0 ms 0%" in lines


def test_a_model_name_in_brackets_is_shown_as_it_is() -> None:
    assert _lines(_stats(model="big[bold]7b[/]", draft_model="a[q4]"))[0] == "a[q4] drafts for big[bold]7b[/]"


def test_the_legend_names_every_colour_once() -> None:
    text = legend().plain
    assert text.count("■") == 3
    for meaning in ("accepted draft", "correction by the target", "free token of the target"):
        assert text.count(meaning) == 1
