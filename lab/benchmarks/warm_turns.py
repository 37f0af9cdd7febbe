"""Time to the first token of a chat's next turn, and of a prompt sent again, against the same prompt read cold.

Method. A verifier process serves the target, and the draft model for mode fused; the pair drafts on this machine. For
each mode, in each repeat with other lines of the standard library: a prompt of about `--tokens` tokens with a salt of
its own (cold), the same again, then `--turns` turns, each of which is the text so far and a message of `--new` tokens,
and the first prompt with another salt, as another key would have it. An answer has `--answer` tokens. Printed: the
median time to the first token and its ratio to the cold one of that mode; for the turns the second, the third, the last
and the slowest; then the tokens per second behind the first token, of the cold answer and of the turns' (the medians).

With `--llama-server`, llama-server without drafts (compiled first) has the same chat beside each mode, request by
request. Printed then: the median ratios of the mode's times to llama-server's.

    python -m lab.benchmarks.warm_turns --target 1.5b.gguf --draft 0.5b.gguf [--tokens 2000] [--turns 10] [--repeats 1]
"""

import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.harness.models import HELD_OUT_FILES
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair.llama_server import UNTOLD, built, complete, llama_server, shared_flags
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier

FLAGS = {
    "target": {"default": str(DEFAULT_TARGET), "help": "GGUF file (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "GGUF file (default: the draft model that ships)"},
    "mode": {"default": [str(mode) for mode in (Mode.TARGET, Mode.FUSED, Mode.REMOTE)], "help": "default: all"},
    **{"tokens": 2000, "turns": 10, "repeats": 1, "new": 8, "answer": 24, "threads": 2},
    "llama-server": {"default": False, "help": "compare with llama-server"},
}


class Asked(NamedTuple):
    """`rate`: tokens per second behind the first one."""

    seconds: float
    rate: float
    answer: list[int]


Ask = Callable[[Sequence[int], str], Asked]  # by prompt and salt
COLD, AGAIN, ANOTHER = "cold", "again", "another salt"


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("warm_turns", options)
    context = options.tokens + options.turns * (options.new + options.answer) + 256
    took: dict[str, dict[str, list[float]]] = {mode: defaultdict(list) for mode in options.mode}
    rates: dict[str, dict[str, list[float]]] = {mode: defaultdict(list) for mode in options.mode}
    over: dict[str, dict[str, list[float]]] = {mode: defaultdict(list) for mode in options.mode}
    with ExitStack() as stack:
        settings = {"model": options.target, "draft_model": options.draft, "slots": 4, "draft_slots": 2}
        server = stack.enter_context(verifier(**settings, context=context, threads=options.threads))
        pair = stack.enter_context(Pair(server.url, DraftModel(options.draft)))
        beside = []
        if options.llama_server:
            other = _llama_server(options.target, context, options.threads, options.answer)
            beside.append(stack.enter_context(other))
        prompts = _prompts(pair, options.tokens)
        more = pair.encode("\n# And what comes then?\n" * options.new)[: options.new]
        for repeat in range(options.repeats):
            for mode in options.mode:
                prompt, salt = next(prompts), f"{mode} {repeat}"
                asks = [_pair(pair, Mode(mode), options.answer), *beside]
                chats = [_chat(ask, prompt, more, options.turns, salt) for ask in asks]
                for (what, asked), *others in zip(*chats, strict=True):
                    took[mode][what].append(asked.seconds)
                    rates[mode][what].append(asked.rate)
                    over[mode][what] += [asked.seconds / other.seconds for _, other in others]
    turns = [f"turn {turn}" for turn in range(2, options.turns + 1)]
    shown = list(dict.fromkeys([AGAIN, *turns[:2], turns[-1]]))
    report.line(f"{'mode':8} {COLD:>8}  " + "  ".join(f"{each:>14}" for each in [*shown, "slowest", ANOTHER]))
    for mode, times in took.items():
        cold = median(times[COLD])
        slowest = max(turns, key=lambda turn: median(times[turn]))
        columns = (median(times[each]) for each in [*shown, slowest, ANOTHER])
        report.line(f"{mode:8} {cold:6.2f} s  " + "  ".join(f"{each:6.2f} s, {each / cold:4.2f}" for each in columns))
    for mode, of in rates.items():
        first, later = median(of[COLD]), median(rate for turn in turns for rate in of[turn])
        report.line(f"{mode:8} {first:6.2f} tokens/s in the first answer, {later:6.2f} in turns, {first / later:4.2f}")
    for mode, ratios in over.items() if beside else ():
        each = ", ".join(f"{what} {median(ratios[what]):.2f}" for what in [COLD, *shown])
        every = median(ratio for turn in turns for ratio in ratios[turn])
        report.line(f"{mode} over llama-server: {each}, all turns {every:.2f}")
    report.save()


def _prompts(pair: Pair, tokens: int) -> Iterator[list[int]]:
    """Prompts that share no beginning, from the library that every Python has."""
    library = Path(sysconfig.get_path("stdlib"))
    lines = "".join((library / name).read_text(encoding="utf-8") for name in HELD_OUT_FILES).splitlines(keepends=True)
    for first in range(0, len(lines), 7):
        yield pair.encode(f"# {first}\n" + "".join(lines[first:]))[:tokens]


def _asked(first_ms: float, behind_ms: float, answer: list[int]) -> Asked:
    return Asked(1e-3 * first_ms, 1e3 * (len(answer) - 1) / behind_ms, answer)


def _pair(pair: Pair, mode: Mode, answer: int) -> Ask:
    def ask(prompt: Sequence[int], salt: str) -> Asked:
        ended = pair.generate(prompt, Options(max_tokens=answer, mode=mode, cache_salt=salt)).read()
        return _asked(ended.stats.ttft_ms, ended.stats.total_ms - ended.stats.ttft_ms, ended.token_ids)

    return ask


@contextmanager
def _llama_server(target: str, context: int, threads: int, answer: int) -> Iterator[Ask]:
    """It knows no salts: a prompt of another one is read as that of the same."""
    with llama_server(built()[0], shared_flags(Path(target), context, threads), speculates=False) as client:

        def ask(prompt: Sequence[int], salt: str) -> Asked:
            written = complete(client, answer, 0.0, list(prompt), 0)
            return _asked(
                written.ttft_ms, 1e3 * written.seconds, [token for token in written.tokens if token != UNTOLD]
            )

        yield ask


def _chat(ask: Ask, prompt: list[int], more: list[int], turns: int, salt: str) -> Iterator[tuple[str, Asked]]:
    """The prompts, and what came of each."""
    asked = ask(prompt, salt)
    yield COLD, asked
    yield AGAIN, ask(prompt, salt)
    text = [*prompt, *asked.answer]
    for turn in range(2, turns + 1):
        text += more
        asked = ask(text, salt)
        yield f"turn {turn}", asked
        text += asked.answer
    yield ANOTHER, ask(prompt, "another " + salt)


if __name__ == "__main__":
    main()
