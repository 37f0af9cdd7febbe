"""Texts to write behind 40 lines of source, out of files that no model here was trained on.

editing        the same lines, the most frequent name in them changed to another
summarising    of the same lines the definitions, and the first lines of what documents them
new code       what follows in the file
"""

import keyword
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lab.benchmarks.harness.models import HELD_OUT_FILES
from specpair.engines.vocabulary import Vocabulary

LINES = 40


@dataclass(frozen=True)
class Task:
    """A text to write behind a prompt, as token ids."""

    kind: str
    prompt: list[int]
    answer: list[int]


def tasks(vocabulary: Vocabulary, most: int) -> list[Task]:
    """Each kind for each file; answers of at most so many tokens."""
    made = []
    for name in HELD_OUT_FILES:
        lines = Path(sysconfig.get_path("stdlib"), name).read_text(encoding="utf-8").splitlines(keepends=True)
        begin = next(at for at in range(len(lines) // 2, len(lines)) if lines[at].lstrip().startswith("def "))
        source = "".join(lines[begin : begin + LINES])
        old = frequent_name(source)
        prompts_and_answers = {
            "editing": (f"{source}\n\n# The same with new_{old} for {old}.\n", renamed(source, old, f"new_{old}")),
            "summarising": (f"{source}\n\n# What is defined here.\n", definitions(source)),
            "new code": (source, "".join(lines[begin + LINES : begin + 2 * LINES])),
        }
        for kind, (prompt, answer) in prompts_and_answers.items():
            ids = vocabulary.encode(answer, add_begin=False)[:most]
            made.append(Task(kind, vocabulary.encode(prompt), ids))
    return made


def frequent_name(source: str) -> str:
    """The most frequent name in `source` of five letters or more that is no keyword."""
    names: list[str] = re.findall(r"[A-Za-z_]\w{4,}", source)
    return Counter(name for name in names if not keyword.iskeyword(name)).most_common(1)[0][0]


def renamed(source: str, old: str, new: str) -> str:
    """`source` with one name in place of another."""
    return re.sub(rf"\b{re.escape(old)}\b", new, source)


def definitions(source: str) -> str:
    """The lines of `source` that define something, each with the first line of its documentation."""
    lines = source.splitlines(keepends=True)
    after = zip(lines, [*lines[1:], ""], strict=True)
    kept = [(line, more if '"""' in more else "") for line, more in after if re.match(r"\s*(def |class |@)", line)]
    return "".join(line for pair in kept for line in pair)
