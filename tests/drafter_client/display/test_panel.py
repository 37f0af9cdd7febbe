"""The panel at the end of a run, printed on a console of fixed width and read as plain text."""

import io
import re
from collections import Counter

import pytest
from rich.console import Console

from drafter_client.display.panel import legend, show, show_main
from drafter_client.display.panel_rows import bars, headline, hints
from drafter_client.statistics import Baseline, Stats, Turn, WaitTimes
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import Schedule
from tests.drafter_client.display.support import everything, stats_of


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


def test_looked_up_drafts_have_a_row() -> None:
    assert "looked up 7 draft tokens looked up, accepted 5" in _lines(stats_of(looked_up=7, looked_up_accepted=5))


def test_a_sampled_text_shows_its_temperature_and_seed() -> None:
    assert "temperature 0.8 seed 77" in _lines(stats_of(sampling={"temperature": 0.8, "seed": 77}))
    assert not any("seed" in line for line in _lines(stats_of(sampling={"temperature": 0.0, "seed": 77})))


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


def test_the_panel_of_a_lockstep_run() -> None:
    sources = Counter({TokenSource.ACCEPTED: 75, TokenSource.BONUS: 25})
    lines = _lines(
        stats_of(drafts_sent=25, schedules=Counter({Schedule.LOCKSTEP: 99}), token_sources=[*sources.elements()])
    )
    assert lines[6:9] == ["sent 3.0 KiB received 10.0 KiB", "tokens 75 accepted, 25 bonus", "schedule lockstep"]


def test_the_panel_of_a_self_continued_run() -> None:
    sources = Counter({TokenSource.BONUS: 1, TokenSource.TARGET_DECODED: 99})
    schedules = Counter({Schedule.SELF_CONTINUED: 99})
    lines = _lines(stats_of(rounds=0, drafted=0, accepted=0, token_sources=[*sources.elements()], schedules=schedules))
    assert "mispredicted 0 tokens next draft ready -" in lines
    assert "tokens 1 bonus, 99 target-decoded" in lines and "schedule self-continued" in lines


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


def test_a_scale_of_averages_says_so_beside_the_longest_latency() -> None:
    token_times = [0.05, *[0.02] * 98, 24.173]
    text = " ".join(_lines(_alone(mode="target", token_times=token_times), 80))
    assert "ITL longest 24173.00 ms" in text and re.search("█ averages: 0 to [0-9.]+ ", text)
    text = " ".join(_lines(_alone(mode="target", token_times=token_times[-20:]), 80))
    assert "ITL longest 24173.00 ms" in text and "█ 0 to 24173.0 " in text


def test_the_full_panel_tells_an_outage_once() -> None:
    text = " ".join(_lines(stats_of(resumed=[7, 31])))
    assert "resumed at token 7, 31, after the verifier went away" in text
    assert text.count("went away") == 1


def test_the_panel_of_the_target_alone() -> None:
    lines = _lines(_alone(mode="target", times=WaitTimes(network=0.15, queue=0.01, verify=1.84)))
    assert lines[0] == "big-7b alone"
    assert "TTFT 50 ms TPOT 19.70 ms" in lines and "sent 3.0 KiB received 10.0 KiB" in lines
    assert lines[9:13] == [
        "forward 1840 ms 92% " + 28 * "█",
        "queue 10 ms 1%",
        "network 150 ms 7% ██",
        "other 0 ms 0%",
    ]
    assert not any(word in " ".join(lines) for word in ("rounds", "draft tokens", "prefill", "verify"))


def test_the_panel_of_server_side_drafting() -> None:
    lines = _lines(stats_of(mode="fused", token_times=[], times=WaitTimes(drafting=0.4, network=0.1, verify=1.5)))
    assert lines[0] == "small-1b drafts for big-7b, on the verifier"
    assert "generated 100 tokens draft tokens 96" in lines
    assert [line.split()[0] for line in lines[9:14]] == ["verify", "queue", "network", "drafting", "other"]


def test_the_panel_of_auto_shows_modes_and_why() -> None:
    lines = _lines(everything("auto"))
    assert "modes remote 16, target 12, remote 72" in lines and "why remote 50.1, target 20.3 tokens/s" in lines


def test_a_text_of_one_token_has_no_latency_between_tokens() -> None:
    lines = _lines(_alone(mode="solo", token_ids=[1], token_times=[0.05]))
    assert "TTFT 50 ms TPOT -" in lines and "prompt 12 tokens ITL median -" in lines
    assert not any("ms a token" in line for line in lines)


def test_a_text_cut_by_the_context_is_noted() -> None:
    lines = _lines(stats_of(context=112))
    assert "ended by context accepted 75" in lines
    assert "the context (112 tokens) is full: --max-tokens asked for more" in lines
    assert not any("is full" in line for line in _lines(stats_of(context=112, finish_reason="stop")))


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


def test_a_missing_speed_up_is_explained_by_the_outage() -> None:
    hint = "no speed-up: an outage interrupted what was measured"
    for stats in (
        stats_of(baseline=Baseline(None, 39.0, 100, True)),
        stats_of(baseline=Baseline(20.0, 39.0, 100, True), resumed=[7]),
    ):
        assert hint in _main(stats, 80) and hint in _lines(stats)


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


@pytest.mark.parametrize("mode", ["remote", "fused", "target", "auto", "solo"])
def test_the_shares_of_the_time_add_up(mode: str) -> None:
    stats = everything(mode)  # whose parts exceed the total
    assert sum(value for _, value in bars(stats)) == pytest.approx(stats.total_time)
    shares = [int(share) for line in _printed(stats, 80) for share in re.findall(r" ms +(\d+)%  ", line)]
    assert sum(shares) == 100


def test_a_model_name_in_brackets_is_shown_as_it_is() -> None:
    assert _lines(stats_of(model="big[bold]7b[/]", draft_model="a[q4]"))[0] == "a[q4] drafts for big[bold]7b[/]"


def test_the_legend_names_every_colour_once() -> None:
    text = legend().plain
    assert "\n" not in text
    assert text.count("■") == len(TokenSource)
    for meaning in ("accepted", "recovered", "bonus", "target-decoded", "forced"):
        assert text.count(meaning) == 1


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
