"""What mode `auto` reaches of the best mode with texts of a real pair, on machines that others have.

Method. Each recorded text (`lab.benchmarks.real_pair`) is written in virtual time in the modes remote and fused; of the
target alone, each token takes a pass. Mode `auto` is written from these three courses: the selection that ships is told
the tokens as they come and chooses the mode; a stretch goes on with the course of its mode where the text is. A change
takes a round trip and a pass. Every text is the first of its pair: nothing was measured or is remembered. The verifier
has the same draft model as the drafter, on the target's device.

The figures are shares of the best mode's tokens a second behind the first token, for each machine the geometric mean
over texts and the least; the best mode is that of the text, or, in the second pair of columns, that of all texts of the
machine and temperature. `here` is this machine with Qwen2.5-Coder 1.5B in bfloat16 and its 0.5B, one thread each.

    python -m lab.benchmarks.real_pair.auto --draft DRAFT.gguf [--recording NAME] [--texts 1] [--tokens 64]
"""

import argparse
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from drafter_client.modes.auto import Stretch
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair import pair
from lab.benchmarks.real_pair.__main__ import agreements, chosen
from lab.benchmarks.real_pair.draft_choices import DraftModel, TextChoices
from lab.benchmarks.real_pair.machines import DRAFTERS, HERE, LINKS, TARGETS, Setting, results_name
from lab.benchmarks.real_pair.recorded import RecordedText
from specpair.drafters.pass_times import PassTimes
from specpair.drafters.run.events import Committed
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.policy.experience import Experience
from specpair.speculation.policy.schedule import Schedule

_TARGETS = ["here", *TARGETS]
MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
FLAGS = {
    "draft": {"help": "GGUF file of the draft model", "required": True, "type": Path},
    "recording": {"default": "qwen2.5-coder-1.5b-instruct-bf16", "help": "(default: %(default)s)"},
    "texts": {"default": 1, "help": "of each kind and temperature, at most (default: %(default)s)"},
    "tokens": {"default": 64, "help": "of each text, at most (default: %(default)s)"},
    "overhead-ms": {"default": 3.0, "help": "of an exchange (default: %(default)s)"},
    "targets": {"default": _TARGETS, "choices": _TARGETS, "help": "(default: all)"},
    "drafters": {"default": [*DRAFTERS], "choices": [*DRAFTERS], "help": "(default: all)"},
    "rtts": {"default": [*LINKS], "help": "seconds (default: %(default)s)"},
    "modes": {"default": [str(mode) for mode in MODES], "choices": MODES, "help": "that are offered (default: all)"},
    "verbose": {"default": False, "help": "say how each text was written"},
}


@dataclass(frozen=True)
class Burst:
    """Tokens that became known at one moment, in seconds behind the first token."""

    at: float
    tokens: int
    agreed: int  # of these, those that the draft model had chosen, too


Courses = dict[Mode, list[Burst]]


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("real_pair.auto", options, results_name("real_pair_auto", options, _TARGETS))
    seconds: dict[tuple[str, float], list[dict[str, float]]] = defaultdict(list)
    settings, modes = _settings(options), [Mode(each) for each in options.modes]
    with closing(DraftModel(options.draft, options.recording)) as model:
        for number, text in chosen(options.recording, options.texts):
            written = text.written._replace(tokens=text.written.tokens[: options.tokens])
            with model.text(number, text) as choices:
                cut = replace(text, written=written)
                agrees = agreements(cut, choices)
                for name, setting in settings.items():
                    courses = {mode: _course(cut, choices, agrees, setting, mode, model.ends) for mode in modes}
                    took, changes = auto(setting, courses, len(written.tokens))
                    times = {str(mode): courses[mode][-1].at for mode in modes} | {"auto": took}
                    seconds[name, text.sampling.temperature].append(times)
                    if options.verbose:
                        told = "  ".join(f"{mode} {each:.2f}" for mode, each in times.items())
                        share = min(times[mode] for mode in modes) / took
                        print(
                            f"{name:40} {text.kind:12}{text.sampling.temperature:4} {told}  {share:.2f}  {changes}",
                            flush=True,
                        )
    report.line(f"{'':44}{'of the best of the text':>24}{'of the best of all':>24}")
    every: tuple[list[float], list[float]] = [], []
    for (name, temperature), took_by_mode in seconds.items():
        by_text, by_all, best = _shares(took_by_mode)
        report.line(f"{name:38}{temperature:6g}" + _told(by_text) + _told(by_all) + f"  {best}")
        for known, more in zip(every, (by_text, by_all), strict=True):
            known += more
    report.line(f"{'all':44}" + "".join(map(_told, every)))
    report.save()


def _settings(options: argparse.Namespace) -> dict[str, Setting]:
    named = {"here": HERE} if "here" in options.targets else {}
    for target, drafter, rtt in itertools.product(options.targets, options.drafters, options.rtts):
        if target != "here":
            machines = TARGETS[target], DRAFTERS[drafter]
            named[f"{target}, {drafter}, {rtt * 1e3:g} ms"] = Setting(*machines, rtt, options.overhead_ms / 1e3)
    return named


def _shares(times: Sequence[dict[str, float]]) -> tuple[list[float], list[float], str]:
    modes = [mode for mode in MODES if mode in times[0]]
    by_text = [min(each[mode] for mode in modes) / each["auto"] for each in times]
    best = max(modes, key=lambda mode: fmean(-log(each[mode]) for each in times))
    return by_text, [each[best] / each["auto"] for each in times], str(best)


def _told(shares: Sequence[float]) -> str:
    return f"{exp(fmean(map(log, shares))):14.3f}{min(shares):10.3f}"


def _course(
    text: RecordedText, choices: TextChoices, agrees: Sequence[bool], setting: Setting, mode: Mode, ends: frozenset[int]
) -> list[Burst]:
    """When the tokens behind the first are known where the text is written in one mode."""
    if mode is Mode.TARGET:
        step = setting.target.cost.seconds([(1, len(text.prompt) + len(agrees))])
        times = [step * at for at in range(1, len(agrees))]
    elif mode is Mode.FUSED:
        times = pair.write_on_server(text, choices, setting, ends, Experience())
    else:
        course = pair.write(text, choices, setting, ends, Experience())
        times = [at - course.opened for at in course.times]
    bursts = ([*some] for _, some in itertools.groupby(range(1, len(agrees)), lambda at: times[at - 1]))
    return [Burst(times[some[0] - 1], len(some), sum(agrees[at] for at in some)) for some in bursts]


def auto(setting: Setting, courses: Courses, tokens: int) -> tuple[float, str]:
    """Seconds behind the first token in mode auto, and the stretches, in words."""
    selection, step = _selection(setting, courses), setting.target.cost.seconds([(1, 0)])
    now, known, stretches = 0.0, 1, list[str]()
    mode = selection.next(tokens)
    while known < tokens:
        stretch = Stretch(mode, now)
        began = known
        if stretches:
            now += setting.rtt + step
        else:
            stretch.add(selection, _committed(mode, Burst(0.0, 1, 0)), now)
        for took, burst in _rest(courses[mode], known):
            stretch.ask(now)
            now, known = now + took, known + burst.tokens
            stretch.add(selection, _committed(mode, burst), now)
            chosen_next = stretch.next(selection, tokens - known, 0)
            if chosen_next is not mode:
                break
        stretches.append(f"{mode} {known - began}")
        mode = chosen_next
    return now, ", ".join(stretches)


def _rest(course: Sequence[Burst], known: int) -> Iterator[tuple[float, Burst]]:
    """The bursts of a course behind `known` tokens, with the seconds that each takes."""
    before, at = 0.0, 1
    for burst in course:
        at += burst.tokens
        if at > known:
            new = min(burst.tokens, at - known)
            share = new / burst.tokens
            yield share * (burst.at - before), Burst(burst.at, new, max(0, burst.agreed - (burst.tokens - new)))
        before = burst.at


def _committed(mode: Mode, burst: Burst) -> Committed:
    """What the drafter is told of these tokens."""
    wrong = burst.tokens - burst.agreed
    if mode is Mode.REMOTE:
        return Committed(
            0, [(0, TokenSource.ACCEPTED)] * burst.tokens, schedule=Schedule.OVERLAPPED, mispredicted=wrong > 0
        )
    if mode is Mode.TARGET:
        return Committed(0, [(0, TokenSource.TARGET_DECODED)] * burst.tokens)
    last = TokenSource.RECOVERED if wrong else TokenSource.BONUS
    return Committed(0, [*[(0, TokenSource.ACCEPTED)] * (burst.tokens - 1), (0, last)])


def _selection(setting: Setting, modes: Iterable[Mode]) -> ModeSelection:
    """That of a pair that has just begun."""
    fused = Mode.FUSED in modes
    told: dict[str, Any] = {
        "name": "target",
        "engine": "virtual",
        "pass_ms": [1e3 * each for each in setting.pass_times],
        "self_continue": True,
        "trees": True,
        "draft_model": "draft" if fused else None,
        "draft_pass_ms": 1e3 * setting.same_box.seconds([(1, 0)]) if fused else None,
    }
    step = setting.drafter.cost.seconds([(1, 0)])
    info = ModelInfo.model_construct(**told)
    link = setting.rtt + setting.overhead
    return ModeSelection([*modes], info, "draft", link, 0.0, times=PassTimes(step, step))


if __name__ == "__main__":
    main()
