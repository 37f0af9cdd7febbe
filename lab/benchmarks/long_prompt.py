"""How often a draft model is right on a long prompt, by what of it the model has read.

Method. Prompts of `--lengths` tokens are made from files that everybody has: modules of Python's library as code and as
the files that an agent has read, this project's pages as a manual. Of each kind there are `--texts`, over other files.
The target answers at temperature 0 with up to `--tokens` tokens, which are kept in `.cache/long_prompt`. Then the draft
model predicts each token of the answer behind the target's own text, by the drafter that ships, having read

    all         everything
    window      the first 64 and the last 512 tokens
    composed    these, and the pieces that it finds by itself

Printed: the share of tokens where it picks the target's; the tokens of a pass where 8 are drafted at a time; for the
last, how many tokens its context had at the end, how many it read in all, and its tokens of a pass over those of `all`;
the same with trees, where the first token that it misses may be that of the lookup in the text, and so on from there.
Then the median time of a draft step, of `all` and of `composed`.

    python -m lab.benchmarks.long_prompt --target 1.5b.gguf --draft 0.5b.gguf [--lengths 4096] [--texts 5]
"""

import hashlib
import json
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from backends.registry import load
from gateway.openai_api.chat.prompt import chat_parts
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.report import ROOT, Report, options_of
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.drafters.composed_drafter import ComposedDrafter
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry
from specpair.engines.kept_texts import shared_length
from specpair.engines.load_options import LoadOptions
from specpair.speculation.drafting.composed_context import SIZES, ContextSizes
from specpair.speculation.drafting.text_lookup import TextLookup
from specpair.speculation.sampling.sampling import Sampling

FLAGS = {
    "target": {"default": str(DEFAULT_TARGET), "help": "GGUF file (default: the target that ships)"},
    "draft": {"default": str(DEFAULT_DRAFT), "help": "GGUF file (default: the draft model that ships)"},
    "lengths": [4096],
    **{"texts": 1, "tokens": 128, "threads": 2},
}
DRAFTED = 8  # tokens at a time
WINDOW = ContextSizes(match=1 << 30)  # no match is so long: no piece is ever read
LIBRARY = ("argparse", "textwrap", "csv", "configparser", "shlex", "heapq", "fractions", "difflib", "zipfile", "cmd")
PAGES = ("rest", "strategies", "engines", "modes", "service", "agents", "models", "openai", "troubleshooting")
_PASS = 512  # tokens of a prompt in a pass


class Prompt(NamedTuple):
    kind: str
    text: str  # that many kinds of one number share
    request: str


class Row(NamedTuple):
    """A draft model over one answer."""

    right: list[bool]
    context: int  # tokens, at the end
    read: int
    looked_up: list[bool]  # where the lookup in the text is right
    steps: list[float]  # seconds of each draft step that read no piece

    @property
    def agreement(self) -> float:
        return mean(self.right)

    def tokens_a_pass(self, *, trees: bool = False) -> float:
        at = passes = 0
        while at < len(self.right):
            end = at + DRAFTED
            at = _run(self.right, at, end)
            if trees:
                at = _run(self.looked_up, at, end)
            at, passes = at + 1, passes + 1
        return len(self.right) / passes


def _run(right: Sequence[bool], begin: int, end: int) -> int:
    """The first place from `begin` on, up to `end`, that is not right."""
    return next((at for at in range(begin, min(end, len(right))) if not right[at]), min(end, len(right)))


def prompts(number: int) -> Iterator[Prompt]:
    """Those of one number."""
    library = Path(sysconfig.get_path("stdlib"))
    names = [LIBRARY[(number + at) % len(LIBRARY)] for at in range(len(LIBRARY))]
    files = [(f"{name}.py", (library / f"{name}.py").read_text(encoding="utf-8")) for name in names]
    code = "\n".join(text for _, text in files)
    first = next(line for line in code.splitlines() if line.startswith("def ") or line.startswith("class "))
    yield Prompt("method", code, f"Write this again, with type hints, and nothing else:\n{first}")
    pages = [PAGES[(number + at) % len(PAGES)] for at in range(len(PAGES))]
    manual = "\n".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in pages)
    yield Prompt("quote", manual, "Quote the first three paragraphs of this manual, word for word.")
    yield Prompt("ask", manual, "What does the last section above say? Answer in a few sentences.")
    history = "\n".join(f"Tool read_file {name}:\n{text[:6000]}\n" for name, text in files)
    call = '{"tool": "read_file", "arguments": {"path": "…", "from_line": 1, "to_line": 40}}'
    yield Prompt("edit", history, f"Write the beginning of {files[0][0]} again, with a comment above each import.")
    yield Prompt("call", history, f"Reply with two calls, as {call}: the first and the second file that you have read.")
    yield Prompt("prose", history, "Explain to a beginner in plain prose what a library like this is good for.")


class Models:
    """The two models, and the prompts as the target's tokens."""

    def __init__(self, target: Backend, draft: Backend, renderer: Renderer, name: str) -> None:
        self.target, self.draft, self._renderer, self._name = target, draft, renderer, name
        self._held: list[int] = []  # what the target has read

    def ids(self, prompt: Prompt, length: int) -> list[int]:
        """The prompt, cut to `length` tokens in front of the request."""
        vocabulary, template = self.target.vocabulary, self.target.chat_template
        text = vocabulary.decode(vocabulary.encode(prompt.text)[: length - 160]).decode(errors="replace")
        asked = f"{text}\n\n{prompt.request}"
        if template is None:
            return vocabulary.encode(f"{asked}\n\n")
        messages = [{"role": "user", "content": asked}]
        return vocabulary.encode_parts(chat_parts(template, vocabulary, messages, self._renderer, {}))

    def answer(self, ids: Sequence[int], most: int) -> list[int]:
        """The target's answer, from the cache if it is there."""
        key = hashlib.sha256(json.dumps([self._name, most, *ids]).encode()).hexdigest()[:24]
        file = ROOT / ".cache" / "long_prompt" / f"{key}.json"
        if file.exists():
            kept: list[int] = json.loads(file.read_text(encoding="utf-8"))
            return kept
        held = shared_length(self._held, ids, min(len(self._held), len(ids) - 1))
        for at in range(held, len(ids) - 1, _PASS):
            part = ids[at : min(at + _PASS, len(ids) - 1)]
            self.target.extend([Entry(0, at, part, len(part))])
        text = [*ids]
        while len(text) < len(ids) + most and text[-1] not in self.target.vocabulary.ends:
            row = self.target.extend([Entry(0, len(text) - 1, text[-1:], 0)])[0][0]
            text.append(int(row.argmax()))
        self._held, answer = text[:-1], text[len(ids) :]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(answer), encoding="utf-8")
        return answer

    def row(self, ids: Sequence[int], answer: Sequence[int], sizes: ContextSizes | None, held: int = 0) -> Row:
        """The draft model over the answer. `sizes`: of its context; None: it reads all, but the first `held`, which
        slot 0 holds."""
        greedy, size = Sampling(), self.target.vocabulary.size
        drafter = ModelDrafter(self.draft, greedy, size, prompt_len=len(ids), begun=(0, held))
        if sizes is not None:
            drafter = ComposedDrafter(self.draft, greedy, size, prompt_len=len(ids), sizes=sizes)
        read = drafter.read_prompt(ids, held, bool, (lambda: sizes is WINDOW) if sizes is not None else bool)
        right, looked_up, steps, lookup = [], [], list[float](), TextLookup()
        lookup.extend(ids)
        for at, token in enumerate(answer):
            began = time.perf_counter()
            expansion = drafter.expand([*ids, *answer[:at]], [[]], 0)
            steps += [time.perf_counter() - began] if expansion.read == 1 else []
            read += expansion.read
            right.append(expansion.proposals[0].token == token)
            looked_up.append([found for found, _ in lookup.predict()] == [token])
            lookup.extend([token])
        return Row(right, drafter.context_read.read, read, looked_up, steps)

    def rows(self, ids: Sequence[int], answer: Sequence[int]) -> dict[str, Row]:
        found = {}
        for name, sizes in (("all", None), ("window", WINDOW), ("composed", SIZES)):
            for slot in range(self.draft.slots):
                self.draft.release(slot)
            found[name] = self.row(ids, answer, sizes)
        return found


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("long_prompt", options)
    room = max(options.lengths) + options.tokens + SIZES.most + 512

    def opened(path: str, slots: int) -> Backend:
        cells = LoadOptions(Path(path), slots=slots, context_length=room, shared_cells=0, threads=options.threads)
        return load("llama_cpp", cells)

    with (
        closing(opened(options.target, 1)) as target,
        closing(opened(options.draft, 2)) as draft,
        closing(Renderer()) as renderer,
    ):
        models = Models(target, draft, renderer, Path(options.target).name)
        report.line(f"{'':>14}{'all':>14}{'window':>14}{'composed':>14}   context   read   over all   trees")
        for length in options.lengths:
            ratios, trees, steps = list[float](), list[float](), defaultdict[str, list[float]](list)
            for number in range(options.texts):
                for prompt in prompts(number):
                    ids = models.ids(prompt, length)
                    rows = models.rows(ids, models.answer(ids, options.tokens))
                    cells = "".join(f"{row.agreement:8.0%} ({row.tokens_a_pass():3.1f})" for row in rows.values())
                    for name, row in rows.items():
                        steps[name] += row.steps
                    composed = rows["composed"]
                    ratios.append(composed.tokens_a_pass() / rows["all"].tokens_a_pass())
                    trees.append(composed.tokens_a_pass(trees=True) / rows["all"].tokens_a_pass())
                    report.line(
                        f"{prompt.kind:7}{len(ids):7}{cells}{composed.context:10}{composed.read:7}{ratios[-1]:11.2f}"
                        f"{trees[-1]:8.2f}"
                    )
            report.line(
                f"{length} tokens: {mean(ratios):.2f} of all in the mean, {min(ratios):.2f} at least; "
                f"with trees {mean(trees):.2f} in the mean, {min(trees):.2f} at least; a draft step takes "
                f"{1e3 * median(steps['all']):.1f} ms over all, {1e3 * median(steps['composed']):.1f} ms composed"
            )
    report.save()


if __name__ == "__main__":
    main()
