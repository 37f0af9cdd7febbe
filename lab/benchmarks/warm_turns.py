"""Time to the first token of a chat's next turn, and of a prompt sent again, against the same prompt read cold.

Method. A verifier process serves the target, and the draft model for mode fused; the pair drafts on this machine. For
each mode, in each repeat with other lines of the standard library: a prompt of about `--tokens` tokens with a salt of
its own (cold), the same again, then `--turns` turns, each of which is the text so far and a line more, and the first
prompt with another salt, as another key would have it. Printed: the median time to the first token and its ratio to the
cold one of that mode; for the turns the second, the last and the slowest.

    python -m lab.benchmarks.warm_turns --target 1.5b.gguf --draft 0.5b.gguf [--tokens 2000] [--turns 10] [--repeats 1]
"""

import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.harness.models import HELD_OUT_FILES
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier

MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
ANSWER = 24  # tokens
FLAGS = {
    "target": {"default": str(DEFAULT_TARGET), "help": "GGUF file (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "GGUF file (default: the draft model that ships)"},
    **{"tokens": 2000, "turns": 10, "repeats": 1},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("warm_turns", options)
    context = options.tokens + options.turns * 4 * ANSWER + 256
    took: dict[Mode, dict[str, list[float]]] = {mode: defaultdict(list) for mode in MODES}
    with (
        verifier(model=options.target, draft_model=options.draft, slots=4, draft_slots=2, context=context) as server,
        Pair(server.url, DraftModel(options.draft)) as pair,
    ):
        prompts = _prompts(pair, options.tokens)
        for repeat in range(options.repeats):
            for mode in MODES:
                for what, seconds in _chat(pair, mode, next(prompts), options.turns, f"{mode} {repeat}"):
                    took[mode][what].append(seconds)
    report.line(
        f"{'mode':8} {'cold':>8}  {'again':>14}  {'turn 2':>14}  {'last turn':>14}  {'slowest':>14}  another salt"
    )
    for mode, times in took.items():
        cold = median(times["cold"])
        last, turns = f"turn {options.turns}", [f"turn {turn}" for turn in range(2, options.turns + 1)]
        slowest = max(turns, key=lambda turn: median(times[turn]))
        columns = (median(times[each]) for each in ("again", "turn 2", last, slowest, "another salt"))
        report.line(f"{mode:8} {cold:6.2f} s  " + "  ".join(f"{each:6.2f} s, {each / cold:4.2f}" for each in columns))
    report.save()


def _prompts(pair: Pair, tokens: int) -> Iterator[list[int]]:
    """Prompts that share no beginning, from the library that every Python has."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = "".join((library / name).read_text(encoding="utf-8") for name in HELD_OUT_FILES).splitlines(keepends=True)
    for first in range(0, len(lines), 7):
        yield pair.encode(f"# {first}\n" + "".join(lines[first:]))[:tokens]


def _chat(pair: Pair, mode: Mode, prompt: list[int], turns: int, salt: str) -> Iterator[tuple[str, float]]:
    """The prompt and the seconds to its first token."""
    more = pair.encode("\n# And what comes then?\n")

    def ask(prompt: Sequence[int], salt: str) -> tuple[float, list[int]]:
        ended = pair.generate(prompt, Options(max_tokens=ANSWER, mode=mode, cache_salt=salt)).read()
        return 1e-3 * ended.stats.ttft_ms, ended.token_ids

    seconds, answer = ask(prompt, salt)
    yield "cold", seconds
    yield "again", ask(prompt, salt)[0]
    text = [*prompt, *answer]
    for turn in range(2, turns + 1):
        text += more
        seconds, answer = ask(text, salt)
        yield f"turn {turn}", seconds
        text += answer
    yield "another salt", ask(prompt, "another " + salt)[0]


if __name__ == "__main__":
    main()
