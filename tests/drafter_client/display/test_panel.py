"""What a run shows at its end: the panel, its rows, the documented labels."""

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from rich.console import Console

from drafter_client.display.panel import legend, show, show_main
from drafter_client.display.panel_rows import bars, columns, couples, headline, hints, lines
from drafter_client.display.progress import say_outage
from drafter_client.display.readout import Readout
from drafter_client.display.status_line import may_share_rows
from drafter_client.generation.generation import Token, Tokens
from drafter_client.http.outages import Outage
from drafter_client.statistics import Baseline, Stats, Turn, WaitTimes
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import Schedule
from tests.drafter_client.display.support import everything, stats_of
from tests.paths import ROOT


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


def test_the_panel_of_an_overlapped_run() -> None:
    schedules = Counter({Schedule.OVERLAPPED: 80, Schedule.SELF_CONTINUED: 20})
    sources = Counter(
        {TokenSource.ACCEPTED: 70, TokenSource.RECOVERED: 5, TokenSource.BONUS: 1, TokenSource.TARGET_DECODED: 24}
    )
    lines = _lines(
        stats_of(
            drafts_sent=31,
            mispredicted=40,
            next_draft_ready=30,
            schedules=schedules,
            token_sources=[*sources.elements()],
        )
    )
    assert lines[6:11] == [
        "mispredicted 40 tokens next draft ready 75.0%",
        "drafts sent 31 drafts out of date 6",
        "sent 3.0 KiB received 10.0 KiB",
        "tokens 70 accepted, 5 recovered, 1 bonus, 24 target-decoded",
        "schedule overlapped 80%, self-continued 20%",
    ]


def _alone(**changes: object) -> Stats:
    """As `stats_of`, of one model alone."""
    token_times = [0.05, *[0.019, 0.021] * 49, 0.026]
    changed = {"draft_model": "", "rounds": 0, "drafted": 0, "accepted": 0, "ttft": 0.05, "token_times": token_times}
    return stats_of(**changed | changes)


def test_the_panel_of_a_solo_run() -> None:
    lines = _lines(_alone(mode="solo", times=WaitTimes(prefill=0.05), total_time=2.036), 80)
    assert lines[:-2] == [
        "big-7b alone, on this machine",
        "prompt 12 tokens ITL median 21.00 ms",
        "generated 100 tokens ITL p90 21.00 ms",
        "ended by max_tokens ITL longest 26.00 ms",
        "TTFT 50 ms TPOT 20.06 ms",
        "speed 49.12 tokens/s",
        "",
        "what the text waited for",
        "prefill 50 ms 2% █",
        "generating 1986 ms 98% " + 29 * "█",
        "",
    ]
    assert re.fullmatch("ms a token [▁▂▃▄▅▆▇█]{41} averages: 0 to 22.0", lines[-2]) and "█" in lines[-2]


@pytest.mark.parametrize("mode", ["remote", "fused", "target", "auto", "solo"])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_on_a_usual_terminal_no_row_is_wrapped(mode: str, width: int) -> None:
    unwrapped, printed = _printed(everything(mode), 400), _printed(everything(mode), width)
    assert len(printed) == len(unwrapped) and {len(line) for line in printed} == {len(printed[0])}
    assert len(printed[0]) <= width
    assert [line.split("█")[0].split() for line in printed[1:-1] if "ms a token" not in line] == [
        line.split("█")[0].split() for line in unwrapped[1:-1] if "ms a token" not in line
    ]


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
    for other in (stats_of(drafted=0, draft_failure="the GPU fell out"), stats_of(), _alone(mode="target"), Stats()):
        assert not hints(other)


def test_notes_come_with_the_main_metrics_too() -> None:
    shown = " ".join(_main(stats_of(context=112, baseline=Baseline(20.0, 39.0, 100, False))))
    assert "the context (112 tokens) is full" in shown and "the text differs, most likely after a near-tie" in shown
    assert "the text was taken up again at token 7, 31" in " ".join(_main(stats_of(resumed=[7, 31])))
    assert "lossy: draft tokens were accepted that the target gave more than 0.2" in " ".join(
        _main(stats_of(sampling=LOSSY))
    )


@pytest.mark.parametrize("mode", ["remote", "fused", "target", "auto", "solo"])
@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_main_metric_is_wrapped(mode: str, width: int) -> None:
    metrics = headline(everything(mode))
    lines = _main(everything(mode), width)
    assert all(any(" ".join(metric.split()) in line for line in lines) for metric in metrics)


@pytest.mark.parametrize("width", [20, 30, 52])
def test_the_legend_wraps_on_a_narrow_terminal(width: int) -> None:
    lines = legend(width).plain.split("\n")
    assert len(lines) > 1 and all(line.startswith("■ ") and len(line) <= width for line in lines)
    assert "   ".join(lines) == legend().plain


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


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals as on Linux")
LINES = [
    "drafter: waiting for the verifier (nothing answers) … 0 s of 300 (--patience)",
    "drafter: the verifier answers again after 20 s",
]
MARK = b"\0end"
Ends = tuple[int, int]  # file descriptors to read from, and to write to


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Ends, Ends], None]]:
    """Makes two files standard output and standard error."""
    monkeypatch.setenv("TERM", "dumb")
    with ExitStack() as stack:

        def make(out: Ends, err: Ends) -> None:
            for end in {*out, *err}:
                stack.callback(os.close, end)
            for name, (_, end) in (("stdout", out), ("stderr", err)):
                monkeypatch.setattr(sys, name, stack.enter_context(open(os.dup(end), "w", encoding="utf-8")))

        yield make


def _with_an_outage(*pieces: str) -> None:
    """Show a text with an outage after each piece but the last: of its begin and its end there is a line each."""
    readout = Readout(as_json=False, stream=True)
    readout.begin(of_two=False)
    for at, piece in enumerate(pieces):
        if at:
            say = say_outage()
            for seconds in (0.0, 10.0):
                say(Outage(seconds, 300.0, "nothing answers"))
            say(Outage(20.0, 300.0, "nothing answers", over=True))
        token = Token(1, piece, TokenSource.TARGET_DECODED)
        readout.add(Tokens(at, [token]))
    readout.close()


def _read(ends: Ends) -> str:
    """All that was written. A terminal delivers it in parts; MARK, written last, tells its end."""
    end, written = ends
    os.write(written, MARK)
    output = b""
    while not output.endswith(MARK):
        output += os.read(end, 65536)
    return output.removesuffix(MARK).decode().replace("\r\n", "\n")


def test_text_that_is_piped_may_be_on_the_screen_of_the_notice(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … | tee file`."""
    pipe, screen = os.pipe(), os.openpty()
    made(pipe, screen)
    _with_an_outage("one\n", "two", "\t", " three")
    assert _read(pipe) == "one\ntwo\t three"
    wait = "\n".join(LINES) + "\n"
    assert _read(screen) == f"{wait}\n{wait}\n{wait}"


def test_a_terminal_without_cursor_control_gets_rows_of_their_own(made: Callable[[Ends, Ends], None]) -> None:
    screen = os.openpty()
    made(screen, screen)
    _with_an_outage("one\n", "two", " three")
    assert _read(screen).splitlines() == ["one", *LINES, "two", *LINES, " three"]


def test_text_and_notice_in_one_pipe_get_rows_of_their_own(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … 2>&1 | tee file`."""
    pipe = os.pipe()
    made(pipe, pipe)
    _with_an_outage("two", " three")
    assert _read(pipe).splitlines() == ["two", *LINES, " three"]


def test_notices_in_a_file_of_their_own_have_no_empty_lines(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … 2> file`."""
    screen, pipe = os.openpty(), os.pipe()
    made(screen, pipe)
    _with_an_outage("two", " three")
    assert (_read(screen), _read(pipe).splitlines()) == ("two three", LINES)


def test_streams_of_this_process_share_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert not may_share_rows(sys.stdout, sys.stderr)


DOCS = (ROOT / "docs" / "readout.md").read_text(encoding="utf-8")
MODES = ("remote", "fused", "target", "auto", "solo")


def _first_cells(section: str) -> list[str]:
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|(.*)\|$", text, re.MULTILINE)
    assert all(rest.rpartition("|")[2].strip() for _, rest in rows), "each has a meaning"
    return [cell.strip("`") for cell, _ in rows[1:]]


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
    assert _first_cells("The words") == [source.value for source in TokenSource]
    assert all(f"`{schedule.value}`" in DOCS for schedule in Schedule)
