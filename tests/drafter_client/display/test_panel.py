"""What a run shows at its end: the panel, its rows, the documented labels."""

import io
import re
from collections import Counter

import pytest
from rich.console import Console

from drafter_client.display.panel import show, show_main
from drafter_client.display.panel_rows import bars, columns, couples, hints, lines
from drafter_client.statistics import Baseline, Stats, Turn, WaitTimes
from specpair.corpus.draft_corpus import CorpusState
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.drafting.composed_context import ContextRead
from specpair.speculation.policy.schedule import Schedule
from tests.paths import ROOT


def everything(mode: str = "remote") -> Stats:
    """A run with every row, as long as they get."""
    return stats_of(
        mode=mode,
        cached_tokens=8,
        token_times=[] if mode in ("remote", "fused", "auto") else [0.02] * 100,
        looked_up=90,
        looked_up_accepted=70,
        by_head=40 if mode == "fused" else 0,
        by_head_accepted=30 if mode == "fused" else 0,
        draft_context=None if mode in ("solo", "target") else ContextRead(64, 512, 960, 131_072),
        corpus=CorpusState(120, 34000, {"binary": 7}, 12, indexing=True),
        prediction_tokens=80,
        prediction_accepted=60,
        prediction_rejected=5,
        drafts_sent=31,
        mispredicted=40,
        next_draft_ready=30,
        schedules=Counter(dict(zip(Schedule, (30, 30, 39), strict=True))) if mode in ("remote", "auto") else Counter(),
        turns=[Turn("remote", 16), Turn("target", 12), Turn("remote", 72)] if mode == "auto" else [],
        why="remote 50.1, target 20.3 tokens/s" if mode == "auto" else "",
        verifiers=[] if mode == "solo" else ["http://127.0.0.1:8001", "http://127.0.0.1:8002"],
        resumed=[] if mode == "solo" else [9, 78],
        outages=0 if mode == "solo" else 2,
        outage_time=0.0 if mode == "solo" else 1.25,
        token_sources=[*Counter(dict(zip(TokenSource, (30, 32, 8, 15, 7, 8), strict=True))).elements()],
        sampling={
            **{"temperature": 0.8, "seed": 2**53 - 1, "strategy": "probabilistic"},
            **{"min_p": 0.05, "logit_bias": {"5": 1.0, "7": -100.0}},
            **{"presence_penalty": -1.25, "frequency_penalty": -1.25, "repetition_penalty": 1.25},
        },
        times=WaitTimes(0.04, 4.0, 99.999, 0.06, 7.0),
        context=112,
        baseline=Baseline(20.0, 39.0, 100, True),
    )


def stats_of(**changes: object) -> Stats:
    stats = Stats(
        model="big-7b",
        draft_model="small-1b",
        prompt_tokens=12,
        token_ids=list(range(100)),
        rounds=25,
        drafted=96,
        accepted=75,
        ttft=0.0416,
        total_time=2.0,
        times=WaitTimes(prefill=0.04, drafting=0.4, network=0.8, queue=0.06, verify=0.7),
        bytes_sent=3072,
        bytes_received=10240,
        finish_reason="length",
    )
    for name, value in changes.items():
        setattr(stats, name, value)
    return stats


def _printed(stats: Stats, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(stats, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.splitlines()


def _lines(stats: Stats, width: int = 100) -> list[str]:
    return [" ".join(line.strip("│╭╰╮╯─ ").split()) for line in _printed(stats, width)]


def test_the_panel_of_a_run() -> None:
    assert _lines(stats_of()) == [
        "small-1b drafts for big-7b",
        "prompt 12 tokens rounds 25",
        "generated 100 tokens draft tokens 96",
        "ended by max_tokens accepted 75",
        "TTFT 42 ms acceptance rate 78.1%",
        "speed 50.00 tokens/s mean acceptance length 4.00",
        "sent 3.0 KiB received 10.0 KiB",
        "",
        "what the text waited for",
        "prefill 40 ms 2% █",
        "verify 700 ms 35% ██████████",
        "queue 60 ms 3% █",
        "network 800 ms 40% ████████████",
        "drafting 400 ms 20% ██████",
        "other 0 ms 0%",
        "",
    ]


def test_a_prediction_has_a_row_even_if_nothing_was_drafted_from_it() -> None:
    found = _lines(stats_of(prediction_tokens=20, prediction_accepted=12, prediction_rejected=3))
    assert "prediction 12 accepted, 3 rejected" in found
    assert "prediction 0 accepted, 0 rejected" in _lines(stats_of(prediction_tokens=20))
    assert not any("prediction" in line for line in _lines(stats_of()))


def _alone(**changes: object) -> Stats:
    """As `stats_of`, of one model alone."""
    token_times = [0.05, *[0.019, 0.021] * 49, 0.026]
    changed = {"draft_model": "", "rounds": 0, "drafted": 0, "accepted": 0, "ttft": 0.05, "token_times": token_times}
    return stats_of(**changed | changes)


@pytest.mark.parametrize("mode", ["remote", "fused", "target", "auto", "solo"])
@pytest.mark.parametrize("width", [40, 60, 75])
def test_on_a_narrow_terminal_each_metric_has_a_line(mode: str, width: int) -> None:
    printed = _printed(everything(mode), width)
    assert all(len(line) <= width for line in printed)
    rows = [line.strip("│ ").split() for line in printed]
    assert ["generated", "100", "tokens"] in rows and ["seed", "9007199254740991"] in rows
    assert (["draft", "tokens", "96"] in rows) == (mode in ("remote", "fused", "auto"))


@pytest.mark.parametrize(
    ("same", "words"),
    [(True, "same text"), (False, "the text differs, most likely after a near-tie (docs/strategies.md: near-ties)")],
)
def test_the_baseline_is_below_with_the_speed_up(same: bool, words: str) -> None:
    lines = _lines(stats_of(baseline=Baseline(20.0, 39.0, 100, same)))
    assert lines[-3:] == ["target alone, measured 20.0 tokens/s TTFT 39 ms speed-up 2.50x", words, ""]


def test_unknown_values_are_dashes() -> None:
    lines = _lines(Stats(model="big-7b"))
    assert lines[0] == "big-7b"
    assert "ended by interrupt accepted 0" in lines
    assert "TTFT - acceptance rate -" in lines
    assert "speed - mean acceptance length -" in lines
    assert "prefill 0 ms 0%" in lines


def _main(stats: Stats, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_main(stats, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    printed = text.splitlines()
    assert {len(line) for line in printed} == {len(printed[0])} and len(printed[0]) <= width
    return [" ".join(line.strip("│╭╰╮╯─ ").split()) for line in printed]


def test_the_main_metrics() -> None:
    assert _main(stats_of(baseline=Baseline(20.0, 39.0, 100, True))) == [
        "small-1b drafts for big-7b",
        "100 tokens 50.0 tokens/s TTFT 42 ms acceptance rate 78.1%",
        "ended by max_tokens 2.50x the target",
        "all: --stats",
    ]
    assert _main(_alone(mode="target"), 80)[1] == "100 tokens 50.0 tokens/s TTFT 50 ms TPOT 19.70 ms"
    assert _main(Stats(model="big-7b", mode="target"))[1] == "0 tokens TTFT - ended by interrupt"


def test_a_speed_up_below_one_is_explained_with_what_the_target_and_a_draft_token_take_and_what_helps() -> None:
    hint = "below 1x: drafting cost more than it saved (target alone: 12.5 ms a token)"
    cure = "--mode auto takes the fastest way; a smaller draft model gains more"
    slow = stats_of(baseline=Baseline(80.0, 39.0, 100, True))
    assert _main(slow)[2:-1] == ["ended by max_tokens 0.62x the target", hint, cure]
    assert hint in _lines(slow) and cure in _lines(slow)
    slow.draft_steps.extend((0.009, 0.4, 0.008))  # the second one had to read a prompt
    assert "a draft token took 9.0 ms" in _lines(slow)
    automatic = stats_of(mode="auto", baseline=Baseline(80.0, 39.0, 100, True))
    assert cure.replace("--mode auto", "the next text") in _lines(automatic)
    for other in (stats_of(baseline=Baseline(51.0, 39.0, 100, True)), stats_of(), _alone(mode="target")):
        assert not hints(other)


def test_a_text_without_judged_draft_tokens_is_explained() -> None:
    stats = stats_of(drafted=0, accepted=0)
    hint = "acceptance rate -: the target wrote alone, no draft token was judged"
    assert hint in _main(stats, 80) and hint in _lines(stats)
    alone = stats_of(drafted=0, accepted=0, baseline=Baseline(80.0, 39.0, 100, True))
    same = "no drafts were used: this is as fast as the target alone, and any difference is noise"
    assert hints(alone) == [same]
    for other in (stats_of(drafted=0, draft_failure="the GPU fell out"), stats_of(), _alone(mode="target"), Stats()):
        assert not hints(other)


def test_notes_come_with_the_main_metrics_too() -> None:
    shown = " ".join(_main(stats_of(context=112, baseline=Baseline(20.0, 39.0, 100, False))))
    assert "the context (112 tokens) is full" in shown and "the text differs, most likely after a near-tie" in shown
    assert "the text was taken up again at token 7, 31" in " ".join(_main(stats_of(resumed=[7, 31])))
    assert "lossy: draft tokens were accepted that the target gave more than 0.2" in " ".join(
        _main(stats_of(sampling=LOSSY))
    )


LOSSY = {"strategy": "threshold", "threshold": 0.2}


@pytest.mark.parametrize(
    ("stats", "lossy"),
    [
        (stats_of(sampling=LOSSY), True),
        (stats_of(sampling=LOSSY, mode="fused"), True),
        (stats_of(sampling=LOSSY, mode="target"), False),
        (stats_of(sampling=LOSSY, mode="auto", turns=[Turn("target", 4), Turn("fused", 3)]), True),
        (stats_of(sampling=LOSSY, mode="auto", turns=[Turn("target", 7)]), False),
        (stats_of(sampling={"strategy": "probabilistic"}), False),
    ],
)
def test_a_text_is_lossy_where_drafts_could_be_accepted(stats: Stats, lossy: bool) -> None:
    shown = " ".join(_lines(stats))
    is_lossy = ("lossy: draft tokens were accepted" in shown, "the text is lossy" in shown)
    assert (*is_lossy, "target's sample" in shown) == (lossy, lossy, not lossy)


DOCS = (ROOT / "docs" / "readout.md").read_text(encoding="utf-8")
MODES = ("remote", "fused", "target", "auto", "solo")


def _first_cells(section: str) -> list[str]:
    """The names of all tables of a section. A cell may have several: rows of the panel, or keys of the object."""
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|(.*)\|$", text, re.MULTILINE)
    assert all(rest.rpartition("|")[2].strip() for _, rest in rows), "each has a meaning"
    cells = [cell for cell, _ in rows if cell not in {"source", "row", "bar", "key"}]
    return [name.strip("`") for cell in cells for name in re.split(r"; |(?<=`), ", cell)]


def _labels(stats: Stats) -> set[str]:
    left, right = columns(stats)
    rows = [*left, *right, *(row for couple in couples(stats) for row in couple), *lines(stats), *bars(stats)]
    return {label for label, _ in rows}


def test_exactly_the_rows_of_the_panel_are_explained() -> None:
    explained = _first_cells("The panel")
    assert len(explained) == len(set(explained))
    assert set(explained) == set.union(*(_labels(everything(mode)) for mode in MODES)) | {"ms a token"}


def test_exactly_the_keys_of_the_object_are_explained() -> None:
    assert _first_cells("The object") == list(Stats().report(""))


def test_every_token_source_and_schedule_is_explained() -> None:
    assert _first_cells("Where tokens come from") == [source.value for source in TokenSource]
    assert all(f"`{schedule.value}`" in DOCS for schedule in Schedule)
