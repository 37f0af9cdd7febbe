"""Simulates speculation over a link with recorded texts of a real pair, on other machines.

Method. A real target has written some texts once (`lab.benchmarks.real_pair.recording`). Each is written again in
virtual time, as the simulator does it: the scheduler and the controller are the real ones, the verifier's engine gives
the recorded tokens, the drafter what the real draft model chooses behind them, with the texts' own noise. Passes take
as long as the stated models would on the stated devices (`pair.py`), an exchange the link's round trip and
`--overhead-ms`, which is what both programs took here. So agreement is that of the real pair, and times are those of
other machines: a target of 8B or 70B and a draft model of its family may agree more or less often.

Each column is a geometric mean over kinds of text of tokens a second behind the first token, as a multiple of the
target alone:

    llama     turns of 3 draft tokens, both models on the target's device, as llama-server has it
    vllm      turns of the best fixed length for that kind and temperature, both models on the target's device
    chains    the drafter as it ships, over the link, where the verifier takes no trees
    trees     the same, where it takes trees
    fused     server-side drafting as it ships, both models on the target's device, whose passes take turns

With some `--targets`, `--drafters` or `--rtts` only, the results go to a file of these.

    python -m lab.benchmarks.real_pair --draft DRAFT.gguf [--recording NAME] [--texts 1]
"""

import argparse
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import exp, log
from pathlib import Path
from statistics import fmean

from backends.registry import load
from lab.benchmarks.harness.kinds import CONTEXT
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair import pair
from lab.benchmarks.real_pair.pair import DRAFTERS, LINKS, TARGETS, Setting
from lab.benchmarks.real_pair.recording import FOLDER, RecordedText, TextChoices, choices_of, read
from specpair.engines.load_options import LoadOptions
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.experience import Experience
from specpair.speculation.policy.schedule import Mechanisms

FLAGS = {
    "draft": {"help": "GGUF file of the draft model", "required": True, "type": Path},
    "recording": {"default": "qwen2.5-coder-1.5b-instruct-bf16", "help": "(default: %(default)s)"},
    "texts": {"default": 4, "help": "of each kind and temperature, at most (default: %(default)s)"},
    "overhead-ms": {"default": 3.0, "help": "of an exchange (default: %(default)s)"},
    "targets": {"default": [*TARGETS], "choices": [*TARGETS], "help": "(default: all)"},
    "drafters": {"default": [*DRAFTERS], "choices": [*DRAFTERS], "help": "(default: all)"},
    "rtts": {"default": [*LINKS], "help": "seconds (default: %(default)s)"},
}
COLUMNS = ("llama", "vllm", "chains", "trees", "fused")
_LLAMA_DRAFTS = 3  # llama-server's own default
Times = dict[str, float]  # seconds of a text behind its first token, by column, and by draft length for vllm


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("real_pair", options, _name(options))
    settings = {
        each: Setting(TARGETS[each[0]], DRAFTERS[each[1]], each[2], options.overhead_ms / 1000)
        for each in itertools.product(options.targets, options.drafters, options.rtts)
    }
    # What earlier texts of a setting have taught, for each of our ways to write them.
    experiences = {each: {way: Experience() for way in ("chains", "trees", "fused")} for each in settings}
    found: dict[tuple[object, ...], list[Times]] = defaultdict(list)
    agreed: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    how = LoadOptions(model=options.draft, context_length=CONTEXT, slots=1, threads=1)
    with closing(load("llama_cpp", how)) as draft:
        ends = frozenset(draft.vocabulary.ends)
        for text in chosen(options.recording, options.texts):
            choices = choices_of(draft, text)
            temperature = text.sampling.temperature
            agreed[temperature][text.kind].append(fmean(choices.agrees[1:]))
            for key, setting in settings.items():
                times = _times(text, choices, setting, experiences[key], ends)
                found[*key, temperature, text.kind].append(times)
    for (target, drafter, rtt), (temperature, kinds) in itertools.product(settings, agreed.items()):
        share = fmean(itertools.chain(*kinds.values()))
        report.line(
            f"\n{target}, drafter {drafter}, {rtt * 1000:g} ms, temperature {temperature:g} "
            f"(the draft model's choice is the target's at {share:.2f} of the places)",
            *_table({kind: _multiples(found[target, drafter, rtt, temperature, kind]) for kind in kinds}),
        )
    report.save()


def chosen(recording: str, most: int) -> Iterator[RecordedText]:
    """Texts of more than one token: at most `most` of each kind and temperature."""
    count: dict[tuple[str, float], int] = defaultdict(int)
    for text in read(FOLDER / f"{recording}.jsonl.gz"):
        kind = text.kind, text.sampling.temperature
        if count[kind] < most and len(text.tokens) > 1:
            count[kind] += 1
            yield text


def _times(
    text: RecordedText,
    choices: TextChoices,
    setting: Setting,
    experiences: Mapping[str, Experience],
    ends: frozenset[int],
) -> Times:
    agrees, cached = choices.agrees, len(text.prompt) + len(text.tokens)
    verify = [setting.target.cost.seconds([(drafts + 1, cached)]) for drafts in range(MAX_AUTO + 1)]
    step = setting.same_box.seconds([(1, cached)])

    def turns(k: int) -> float:
        """With both models on one device: draft k tokens, then verify them."""
        seconds, at = 0.0, 1
        while at < len(agrees):
            k = min(k, len(agrees) - at - 1)  # the pass itself brings the last token
            seconds += k * step + verify[k]
            at += 1 + next((run for run, agreed in enumerate(agrees[at : at + k]) if not agreed), k)
        return seconds

    def ours(way: str, trees: bool) -> float:
        course = pair.write(text, choices, setting, ends, experiences[way], mechanisms=Mechanisms(trees=trees))
        return course.times[-1] - course.opened

    return {
        "alone": (len(agrees) - 1) * verify[0],
        "llama": turns(_LLAMA_DRAFTS),
        **{f"vllm {k}": turns(k) for k in range(1, MAX_AUTO + 1)},
        "chains": ours("chains", trees=False),
        "trees": ours("trees", trees=True),
        "fused": pair.write_on_server(text, choices, setting, ends, experiences["fused"])[-1],
    }


def _multiples(times: Sequence[Times]) -> dict[str, float]:
    """The rates of a kind's texts together, as multiples of the target alone, by column."""
    total = {name: sum(each[name] for each in times) for name in times[0]}
    total["vllm"] = min(seconds for name, seconds in total.items() if name.startswith("vllm "))
    return {name: total["alone"] / total[name] for name in COLUMNS}


def _table(kinds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each kind, and their geometric mean."""

    def mean(ratios: Iterable[float]) -> float:
        return exp(fmean(map(log, ratios)))

    rows = {**kinds, "all": {name: mean(each[name] for each in kinds.values()) for name in COLUMNS}}
    head = f"{'':12}" + "".join(f"{each:>13}" for each in COLUMNS)
    return [head, *(f"{kind:12}" + "".join(f"{row[name]:13.2f}" for name in COLUMNS) for kind, row in rows.items())]


def _name(options: argparse.Namespace) -> str:
    """The name of the results: the pair, and the targets, drafters and links if only some were chosen."""
    parts = [f"real_pair_{options.recording}+{options.draft.stem}"]
    for asked, every in ((options.targets, TARGETS), (options.drafters, DRAFTERS)):
        if asked != [*every]:
            parts.append("+".join(asked).replace(" ", "-"))
    if options.rtts != [*LINKS]:
        parts.append("+".join(f"{1e3 * rtt:g}-ms" for rtt in options.rtts))
    return "_".join(parts)


if __name__ == "__main__":
    main()
