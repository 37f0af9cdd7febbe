"""The totals of many prompts, printed on a console of 80 columns and compared as they are."""

import io
from typing import Any

import pytest
from rich.console import Console

from drafter_client.batch.results import Result
from drafter_client.batch.totals import show_totals


def _text(index: int, tokens: int, total_ms: float, **more: Any) -> Result:
    line = {"model": "big-7b", "draft_model": "small-1b", "id": None, "generated_tokens": tokens, "total_ms": total_ms}
    line |= {"rounds": 10, "drafted": 40, "accepted": 30, "ttft_ms": 20.0, "bytes_sent": 1024, "bytes_received": 2048}
    asked = {"strategy": "coupled", "threshold": None, "mode": "remote"}
    return Result(index, line | {"text": "…", "asked": asked} | more)


FAILED = Result(3, {"id": None, "error": {"message": "too long"}})
FOUND = [_text(0, 100, 1000.0)]
NEW = [_text(2, 100, 2000.0, ttft_ms=30.0), _text(1, 100, 500.0, id="fib", ttft_ms=40.0), FAILED]


def _shown(prompts: int, found: list[Result], new: list[Result], seconds: float, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_totals(prompts, found, new, seconds, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _rows(shown: str) -> list[str]:
    return [" ".join(line.strip("│ ").split()) for line in shown.splitlines()]


def test_the_whole_table() -> None:
    assert (
        _shown(5, FOUND, NEW, 4.0)
        == """\
╭─────────────────── small-1b drafts for big-7b ────────────────────╮
│ prompts                5  all together             50.00 tokens/s │
│ finished               3  a text, median          100.00 tokens/s │
│ of them before         1                                          │
│ errors                 1  a text, p10              60.00 tokens/s │
│ tokens               300  TTFT, median                      30 ms │
│ acceptance rate    75.0%  mean acceptance length             4.00 │
│ sent             3.0 KiB  received                        6.0 KiB │
│                                                                   │
│ fastest  200.00 tokens/s, prompt 2 (fib)                          │
│ slowest  50.00 tokens/s, prompt 3                                 │
│ time     4.0 s                                                    │
╰───────────────────────────────────────────────────────────────────╯
"""
    )


def test_totals_without_texts_are_dashes() -> None:
    assert (
        _shown(2, [], [FAILED], 0.0)
        == """\
╭───────────────────────── no text ─────────────────────────╮
│ prompts                2  all together                  - │
│ finished               0  a text, median                - │
│ errors                 1  a text, p10                   - │
│ tokens                 0  TTFT, median                  - │
│ acceptance rate        -  mean acceptance length        - │
│ sent             0.0 KiB  received                0.0 KiB │
│                                                           │
│ time  0.0 s                                               │
╰───────────────────────────────────────────────────────────╯
"""
    )


def test_texts_that_resumed_after_an_outage_are_named_in_the_order_of_the_file() -> None:
    before, now = _text(0, 9, 10.0, resumed=[4]), _text(2, 9, 10.0, resumed=[1, 5], id="fib")
    shown = _rows(_shown(4, [before], [now, _text(1, 9, 10.0, resumed=[])], 4.0))
    assert "resumed prompt 1, prompt 3 (fib), after the verifier went away" in shown
    many = _rows(_shown(30, [], [_text(index, 9, 10.0, resumed=[1]) for index in range(12)], 4.0, 200))
    assert f"resumed {', '.join(f'prompt {n}' for n in range(1, 11))} and 2 more, after the verifier went away" in many


def test_outages_are_told_apart_from_the_speed_of_the_texts() -> None:
    shown = _rows(_shown(2, [], [_text(0, 10, 2100.0, outage_ms=2000.0), _text(1, 10, 100.0)], 2.1))
    assert "finished 2 a text, median 100.00 tokens/s" in shown
    assert "outages 2.0 s of waiting, no part of the speed of a text" in shown


def test_without_drafts_there_is_no_acceptance() -> None:
    shown = _rows(_shown(1, [], [_text(0, 10, 100.0, draft_model="", rounds=0, drafted=0, accepted=0)], 0.2))
    assert shown[0].strip("╭─╮ ") == "big-7b"
    assert "acceptance rate - mean acceptance length -" in shown
    assert shown[1:4] == [
        "prompts 1 all together 50.00 tokens/s",
        "finished 1 a text, median 100.00 tokens/s",
        "errors 0 a text, p10 100.00 tokens/s",
    ]


@pytest.mark.parametrize(
    ("strategy", "threshold", "mode", "row"),
    [
        ("threshold", 0.25, "remote", "strategy threshold 0.25 the text is lossy"),
        ("threshold", 0.25, "auto", "strategy threshold 0.25 the text is lossy"),
        ("threshold", 0.25, "target", "strategy threshold 0.25 the text is target's sample"),
        ("probabilistic", None, "remote", "strategy probabilistic the text is target's sample"),
        ("coupled", None, "remote", None),
    ],
)
def test_another_strategy_is_named_with_its_exactness(
    strategy: str, threshold: float | None, mode: str, row: str | None
) -> None:
    asked = {"strategy": strategy, "threshold": threshold, "mode": mode}
    shown = _shown(1, [], [_text(0, 10, 100.0, asked=asked)], 0.2)
    assert [each for each in _rows(shown) if each.startswith("strategy")] == ([] if row is None else [row])


def test_a_narrow_terminal_is_not_exceeded() -> None:
    assert all(len(line) <= 60 for line in _shown(5, FOUND, NEW, 4.0, 60).splitlines())
