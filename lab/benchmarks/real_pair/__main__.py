"""What speculation over a link would bring with texts of a real pair, on machines that others have.

Method. A real target has written some texts once (`lab.benchmarks.real_pair.record`). Each is written again in virtual
time, as the simulator does it: the scheduler and the controller are the real ones, the verifier's engine gives the
recorded tokens, the drafter what the real draft model chooses behind them, with the texts' own noise. Passes take as
long as the stated models would on the stated devices (`machines.py`), an exchange the link's round trip and
`--overhead-ms`, which is what both programs took here. So agreement is that of the real pair, and times are those of
other machines: a target of 8B or 70B and a draft model of its family may agree more or less often.

Each column is a geometric mean over kinds of text of tokens a second behind the first token, as a multiple of the
target alone:

    llama         turns of 3 draft tokens, both models on the target's device, as llama-server has it
    vllm          turns of the best fixed length for that kind and temperature, both models on the target's device
    static        the best policy with hindsight that is the same at every position, over the link (`static_policies`);
                  the best for each text
    static tree   the same with a tree, the best tree and policy for that kind and temperature (`static_trees`)
    chains        the drafter as it ships, over the link, where the verifier takes no trees
    trees         the same, where it takes trees
    fused         server-side drafting as it ships, both models on the target's device, whose passes take turns
    chain bound   what no drafter could beat that sends chains of the draft model's first choices and of what it looks
                  up in the text, as its draft steps and the link take time (`draft_bound`)
    tree bound    the same with trees of whatever size, of all choices that are known here

The drafters of the static policies look nothing up.

At the end stands what trees bring over chains, and how far the two bounds are apart, by temperature: for kinds of
text where the draft model's choice is the target's at less than 0.65 of the places, and for the others.

The first run asks the draft model about every continuation that comes up, which takes some seconds a text; the answers
are kept. With `--unasked` it is asked only behind what the target wrote (`draft_choices.py`). With some `--targets`,
`--drafters` or `--rtts` only, the results go to a file of these.

    python -m lab.benchmarks.real_pair --draft DRAFT.gguf [--recording NAME] [--texts 2]
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair import pair
from lab.benchmarks.real_pair.draft_choices import KEPT, DraftModel, TextChoices
from lab.benchmarks.real_pair.hindsight import Hindsight
from lab.benchmarks.real_pair.machines import DRAFTERS, LINKS, TARGETS, Setting, results_name
from lab.benchmarks.real_pair.recorded import FOLDER, RecordedText, read
from lab.benchmarks.real_pair.tables import Multiples, Times, multiples, table, trees_over_chains
from lab.simulator.known_outputs.draft_bound import least_seconds
from lab.simulator.known_outputs.static_policies import MeasuredLatencies, Policy, best, replay
from lab.simulator.known_outputs.static_trees import TreeDrafts, shares, tree_seconds, trees
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
    "unasked": {
        "action": "store_true",
        "help": "do not ask the draft model behind tokens that the target did not write",
    },
    "rtts": {"default": [*LINKS], "help": "seconds (default: %(default)s)"},
}
_LLAMA_DRAFTS = 3  # llama-server's own default


class Known(NamedTuple):
    """A text with what is known of it. `drafts`: for each static tree."""

    text: RecordedText
    hindsight: Hindsight
    drafts: list[TreeDrafts]


class Experiences(NamedTuple):
    """What earlier texts of a setting have taught, for each of our ways to write them."""

    chains: Experience
    trees: Experience
    fused: Experience


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("real_pair", options, results_name("real_pair", options))
    settings = {
        each: Setting(TARGETS[each[0]], DRAFTERS[each[1]], each[2], options.overhead_ms / 1000)
        for each in itertools.product(options.targets, options.drafters, options.rtts)
    }
    experiences = {each: Experiences(Experience(), Experience(), Experience()) for each in settings}
    found: dict[tuple[object, ...], list[Times]] = defaultdict(list)
    accepted: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with closing(DraftModel(options.draft, options.recording, asks_all=not options.unasked)) as model:
        for number, each in _known(model, chosen(options.recording, options.texts)).items():
            text = each.text
            with model.text(number, text) as choices:
                accepted[text.sampling.temperature][text.kind].append(fmean(each.hindsight.trace.agrees[1:]))
                for key, setting in settings.items():
                    times = _times(each, choices, setting, experiences[key], model.ends)
                    found[*key, text.sampling.temperature, text.kind].append(times)
    cells: dict[float, dict[str, dict[str, Multiples]]] = defaultdict(dict)
    for key in settings:
        for temperature, agreed in accepted.items():
            kinds = {kind: multiples(found[*key, temperature, kind]) for kind in agreed}
            cells[temperature][_name(key)] = kinds
            title = _title(key, temperature, fmean(itertools.chain(*agreed.values())))
            report.line("", title, *table(kinds))
    for temperature, agreed in accepted.items():
        share = {kind: fmean(each) for kind, each in agreed.items()}
        lines = trees_over_chains(cells[temperature], share)
        report.line("", f"Trees over chains, temperature {temperature:g}", *lines)
    report.save()


def chosen(recording: str, most: int) -> list[tuple[int, RecordedText]]:
    """Texts of more than one token, with their numbers: at most `most` of each kind and temperature."""
    count: dict[tuple[str, float], int] = defaultdict(int)
    chosen = []
    for number, text in enumerate(read(FOLDER / f"{recording}.jsonl.gz")):
        kind = text.kind, text.sampling.temperature
        if count[kind] < most and len(text.written.tokens) > 1:
            count[kind] += 1
            chosen.append((number, text))
    return chosen


def agreements(text: RecordedText, choices: TextChoices) -> list[bool]:
    """For each of the target's tokens, whether the draft model, knowing all before it, chooses it, too."""
    first = len(text.prompt)
    return [choices.after(first + at, ()).ids[0] == token for at, token in enumerate(text.written.tokens)]


def _known(model: DraftModel, texts: Sequence[tuple[int, RecordedText]]) -> dict[int, Known]:
    """The texts, by their numbers, with what is known of them: the trees are chosen by all texts of a kind."""
    hindsights = {}
    for number, text in texts:
        with model.text(number, text) as choices:
            hindsights[number] = Hindsight.of(text, choices)
    kinds: dict[tuple[str, float], list[int]] = defaultdict(list)
    for number, text in texts:
        kinds[text.kind, text.sampling.temperature].append(number)
    known = {}
    for number, text in texts:
        of_kind = (hindsights[each].ranks[1:] for each in kinds[text.kind, text.sampling.temperature])
        tried = sorted(trees(shares(of_kind, KEPT)))
        drafts = [TreeDrafts(each, hindsights[number].ranks) for each in tried]
        known[number] = Known(text, hindsights[number], drafts)
    return known


def _times(
    known: Known,
    choices: TextChoices,
    setting: Setting,
    experiences: Experiences,
    ends: frozenset[int],
) -> Times:
    text, hindsight, trace = known.text, known.hindsight, known.hindsight.trace
    cached = len(text.prompt) + len(trace.agrees)
    target, drafter = setting.target.cost, setting.drafter.cost

    @cache
    def verify(drafts: int) -> float:
        return target.seconds([(drafts + 1, cached)])

    def verify_at_first(drafts: int) -> float:
        return target.seconds([(drafts + 1, len(text.prompt))])

    def step(rows: int) -> float:
        return drafter.seconds([(1, cached)] * rows)

    over_link = MeasuredLatencies(step(1), verify, setting.rtt, setting.overhead)
    least = MeasuredLatencies(step(1), verify_at_first, setting.rtt, setting.overhead)
    here = MeasuredLatencies(setting.same_box.seconds([(1, cached)]), verify, 0.0)
    behind = len(trace.agrees) - 1

    def turns(k: int) -> float:
        return replay(trace, here, Policy("turns", k, drafts_on=False))[-1][0]

    def ours(trees: bool, experience: Experience) -> float:
        course = pair.write(text, choices, setting, ends, experience, mechanisms=Mechanisms(trees=trees))
        return course.times[-1] - course.opened

    return {
        "alone": behind * verify(0),
        "llama": turns(_LLAMA_DRAFTS),
        **{f"vllm {k}": turns(k) for k in range(1, MAX_AUTO + 1)},
        "static": behind / best(trace, over_link).tokens_per_second,
        **{f"static tree {name}": each for name, each in tree_seconds(trace, known.drafts, over_link, step)},
        "chains": ours(False, experiences.chains),
        "trees": ours(True, experiences.trees),
        "fused": pair.write_on_server(text, choices, setting, ends, experiences.fused)[-1],
        "chain bound": least_seconds(hindsight.chain, least),
        "tree bound": least_seconds(hindsight.tree, least),
    }


def _name(key: tuple[str, str, float]) -> str:
    target, drafter, rtt = key
    return f"{target}, drafter {drafter}, {rtt * 1000:g} ms"


def _title(key: tuple[str, str, float], temperature: float, agreed: float) -> str:
    return (
        f"{_name(key)}, temperature {temperature:g} "
        f"(the draft model's choice is the target's at {agreed:.2f} of the places)"
    )


if __name__ == "__main__":
    main()
