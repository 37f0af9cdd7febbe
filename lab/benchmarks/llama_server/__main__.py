"""llama-server's own speculation against ours, with the same models, both on this machine.

Method. llama-server is of the llama.cpp that our engine uses, compiled with the same options (`llama_server.build`).
The target is the default one padded until a step takes `--step-ms` here on one thread; each draft model that ships
drafts, on one thread, as it ships and padded until its step takes `--draft-ms`. (Those that ship take 1 % of the
target's step. A usual pair of 8B and 1B is 8 to 1.) On the same held-out prompts by turns, each time in another order:

    llama-server alone    one thread
    n-gram types          every one that needs no file
    draft-simple n        a draft model in llama-server's own process, which drafts n tokens at most, then verifies
    ours, remote          the default of `python -m drafter_client`: verifier process, drafter here, over loopback
    ours, auto            the same in mode auto
    our target alone      the same verifier, streamed

The flags are in `llama_server.settings`; the best of all settings counts. Sampling is without filters on both sides,
with one seed for each prompt; llama-server has its own noise, so at temperatures above 0 its texts are others. Tokens
per second are those behind the first token. llama-server's are by its own `timings`, without HTTP; ours are by the
clock of the program that reads the text. The first line of a table says how that clock compares with llama-server's
times. Servers of all settings wait side by side (one that waits takes 0.1 % of a core) and are new at each temperature,
so that an n-gram type that remembers earlier texts knows those of other prompts only. A short text of each comes first,
which is not counted. The bound of a cell is what no policy can exceed with the draft tokens of its draft model and of
lookup (`llama_server.bound`).

llama-server drafts and verifies by turns, so one thread is all it uses; ours drafts on a second core, which stands for
the other machine. `--threads 2` gives llama-server's target both cores.

    python -m lab.benchmarks.llama_server [--tokens 72] [--prompts 4] [--temperatures 0 0.8]
"""

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from drafter_client import Mode, Pair
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Way, by_turns
from lab.benchmarks.llama_server.bound import bound
from lab.benchmarks.llama_server.build import built_or_exit, source_commit
from lab.benchmarks.llama_server.ours import margins, pairs, write
from lab.benchmarks.llama_server.server import complete, llama_server
from lab.benchmarks.llama_server.settings import ALONE, Setting, settings, shared_flags
from lab.benchmarks.llama_server.summary import Texts, cell, clocks, conclusion, difference, draw, table
from lab.simulator.paced.padded_target import padded_draft, padded_target, step_ms

MODES = (Mode.REMOTE, Mode.AUTO)
TARGET = "our target alone"
_WIDEST = 17  # tokens of the widest pass that is timed for the bounds
_FIRST_TOKENS = 8  # of the text that is not counted
FLAGS = {
    **{"tokens": 72, "prompts": 4, "step-ms": 30.0, "temperatures": [0.0, 0.8]},
    "drafters": {"default": ["twin", "small"], "choices": DRAFTERS},
    "draft-ms": {
        "default": [0.0, 3.0],
        "help": "a draft step's time to which draft models are padded; 0: as they ship",
    },
    "lengths": {"default": [3, 8, 16], "help": "most draft tokens of llama-server's draft models"},
    "threads": {"default": 1, "help": "of llama-server's target"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "matplotlib")
    program = built_or_exit()
    report = Report("llama_server", options)
    target = padded_target(options.step_ms)
    drafters = {
        f"{name} {ms:g} ms" if ms else name: padded_draft(DRAFTERS[name], ms) if ms else DRAFTERS[name]
        for ms in options.draft_ms
        for name in options.drafters
    }
    chosen, cells = settings(drafters, options.lengths), []
    shared = shared_flags(target, CONTEXT, options.threads)
    report.line(f"# llama.cpp {source_commit()}; all servers: {' '.join(shared[2:])}")
    pass_ms = list(step_ms(target, widths=range(1, _WIDEST + 1), in_turn=True).values())
    report.line(f"# milliseconds of passes over 1 to {_WIDEST} tokens: {', '.join(f'{ms:.1f}' for ms in pass_ms)}")
    draft_steps = (f"{name} {step_ms(path)[1]:.2f}" for name, path in drafters.items())
    report.line(f"# milliseconds of a draft step: {', '.join(draft_steps)}")
    with pairs(target, drafters) as ours:
        prompts = [next(iter(ours.values())).encode(prompt) for prompt in held_out_prompts(options.prompts + 1)]
        for temperature in options.temperatures:
            texts = _written(program, shared, chosen, ours, prompts, options.tokens, temperature)
            report.line(f"\ntemperature {temperature:g}; {clocks(texts)}", *table(texts, temperature == 0))
            if temperature == 0:
                report.line(*_near_ties(target, prompts[1:], texts))
            for name, path in drafters.items():
                modes = {str(mode): _name(name, mode) for mode in MODES}
                written = [(prompt, text.tokens) for prompt, text in zip(prompts[1:], texts[TARGET], strict=True)]
                with closing(load_drafter(path)) as model:
                    most = bound(model, written, temperature, [each / 1e3 for each in pass_ms])
                cells.append(cell(texts, chosen, name, temperature, modes, most))
    report.line("", *conclusion(cells))
    report.save()
    draw(cells, report.beside(".png"))


def _written(
    program: Path,
    shared: list[str],
    chosen: list[Setting],
    ours: dict[str, Pair],
    prompts: list[list[int]],
    tokens: int,
    temperature: float,
) -> Texts:
    """Every prompt but the first in every way. The first is written in every way before, and not counted."""

    def ways(tokens: int) -> dict[str, Way[list[int]]]:
        made: dict[str, Way[list[int]]] = {
            name: partial(complete, client, tokens, temperature) for name, client in clients.items()
        }
        for name, pair in ours.items():
            made |= {_name(name, mode): partial(write, pair, mode, tokens, temperature) for mode in MODES}
        return made | {TARGET: partial(write, next(iter(ours.values())), Mode.TARGET, tokens, temperature)}

    with ExitStack() as servers:
        clients = {
            each.name: servers.enter_context(llama_server(program, [*shared, *each.flags], speculates=each.speculates))
            for each in chosen
        }
        by_turns(ways(_FIRST_TOKENS), prompts[:1])
        return by_turns(ways(tokens), prompts[1:])


def _name(drafter: str, mode: Mode) -> str:
    return f"ours, {mode}, {drafter}"


def _near_ties(target: Path, prompts: list[list[int]], texts: Texts) -> list[str]:
    """A line for each place where a text of ours leaves that of llama-server alone: how close the two tokens are."""
    places = {
        (number, at): way
        for way, written in texts.items()
        if way.startswith("our")
        for number, (mine, alone) in enumerate(zip(written, texts[ALONE], strict=True))
        if (at := difference(mine, alone)) is not None
    }
    if not places:
        return ["  all texts of ours are those of llama-server alone"]
    before = [prompts[number] + texts[way][number].tokens[:at] for (number, at), way in places.items()]
    return [
        f"  {way}, text {number + 1}: differs from token {at} on; there the two likeliest logits are {gap:.4f} apart"
        for ((number, at), way), gap in zip(places.items(), margins(target, before), strict=True)
    ]


if __name__ == "__main__":
    main()
