"""Time to the first token of a chat's next turn, and of a prompt sent again, against the same prompt read cold.

Method. A verifier process serves the target, and the draft model for mode fused; the pair drafts on this machine. For
each mode, in each repeat with other lines of the standard library: a prompt of about `--tokens` tokens with a salt of
its own (cold), the same again, then `--turns` turns, each of which is the text so far and a line more, and the first
prompt with another salt, as another key would have it. Printed: the median time to the first token and its ratio to the
cold one of that mode; for the turns the second, the last and the slowest; then the tokens per second behind the first
token, of the cold answer and of the turns' in the median, and their ratio.

    python -m lab.benchmarks.warm_turns --target 1.5b.gguf --draft 0.5b.gguf [--tokens 2000] [--turns 10] [--answer 24]
"""

import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.harness.models import HELD_OUT_FILES
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier

MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
FLAGS = {
    "target": {"default": str(DEFAULT_TARGET), "help": "GGUF file (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "GGUF file (default: the draft model that ships)"},
    **{"tokens": 2000, "turns": 10, "answer": 24, "repeats": 1},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("warm_turns", options)
    context = options.tokens + options.turns * (options.answer + 16) + 256
    took: dict[Mode, dict[str, list[float]]] = {mode: defaultdict(list) for mode in MODES}
    rates: dict[Mode, dict[bool, list[float]]] = {mode: defaultdict(list) for mode in MODES}  # by whether it was cold
    with (
        verifier(model=options.target, draft_model=options.draft, slots=4, draft_slots=2, context=context) as server,
        Pair(server.url, DraftModel(options.draft)) as pair,
    ):
        prompts = _prompts(pair, options.tokens)
        for repeat in range(options.repeats):
            for mode in MODES:
                how = Options(max_tokens=options.answer, mode=mode, cache_salt=f"{mode} {repeat}")
                for what, seconds, rate in _chat(pair, how, next(prompts), options.turns):
                    took[mode][what].append(seconds)
                    if what == "cold" or what.startswith("turn"):
                        rates[mode][what == "cold"].append(rate)
    report.line(
        f"{'mode':8} {'cold':>8}  {'again':>14}  {'turn 2':>14}  {'last turn':>14}  {'slowest':>14}  another salt"
    )
    for mode, times in took.items():
        cold = median(times["cold"])
        last, turns = f"turn {options.turns}", [f"turn {turn}" for turn in range(2, options.turns + 1)]
        slowest = max(turns, key=lambda turn: median(times[turn]))
        columns = (median(times[each]) for each in ("again", "turn 2", last, slowest, "another salt"))
        report.line(f"{mode:8} {cold:6.2f} s  " + "  ".join(f"{each:6.2f} s, {each / cold:4.2f}" for each in columns))
    report.line(f"{'mode':8} {'tokens/s, cold':>15}  {'turns':>6}")
    for mode, of in rates.items():
        cold, warm = median(of[True]), median(of[False])
        report.line(f"{mode:8} {cold:15.2f}  {warm:6.2f}  {cold / warm:4.2f}")
    report.save()


def _prompts(pair: Pair, tokens: int) -> Iterator[list[int]]:
    """Prompts that share no beginning, from the library that every Python has."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = "".join((library / name).read_text(encoding="utf-8") for name in HELD_OUT_FILES).splitlines(keepends=True)
    for first in range(0, len(lines), 7):
        yield pair.encode(f"# {first}\n" + "".join(lines[first:]))[:tokens]


def _chat(pair: Pair, how: Options, prompt: list[int], turns: int) -> Iterator[tuple[str, float, float]]:
    """The prompt, the seconds to its first token, and the tokens per second behind it."""
    more = pair.encode("\n# And what comes then?\n")

    def ask(prompt: Sequence[int], how: Options) -> tuple[float, float, list[int]]:
        stats = (ended := pair.generate(prompt, how).read()).stats
        behind = 1e-3 * (stats.total_ms - stats.ttft_ms)
        return 1e-3 * stats.ttft_ms, (len(ended.token_ids) - 1) / behind, ended.token_ids

    first, rate, answer = ask(prompt, how)
    yield "cold", first, rate
    yield "again", *ask(prompt, how)[:2]
    text = [*prompt, *answer]
    for turn in range(2, turns + 1):
        text += more
        first, rate, answer = ask(text, how)
        yield f"turn {turn}", first, rate
        text += answer
    yield "another salt", *ask(prompt, replace(how, cache_salt="another " + how.cache_salt))[:2]


if __name__ == "__main__":
    main()
