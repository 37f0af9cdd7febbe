"""The draft models and prompts of experiments."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path

from drafter_client.draft_sources import load_model
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from models.training.corpus import HELD_OUT
from specpair.drafters.base import Drafter
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}  # the twin is the target in 4 bits
BRANCHES = 6  # continuations that a drafter may look behind at once
CONTEXT = 1024
HELD_OUT_FILES = ("configparser.py", "fractions.py", "_osx_support.py")


def load_drafter(path: Path) -> Backend:
    """A draft model as users get it, on one thread."""
    return load_model("llama_cpp", LoadOptions(context_length=CONTEXT, threads=1), path, BRANCHES)


def held_out_prompts(count: int, lines_each: int = 4) -> list[str]:
    """Prompts of `lines_each` lines, from files that the default pair was not trained on and every Python has."""
    assert HELD_OUT.issuperset(HELD_OUT_FILES)
    library = Path(sysconfig.get_path("stdlib"))
    texts = [(library / name).read_text(encoding="utf-8").splitlines(keepends=True) for name in HELD_OUT_FILES]
    places = [(lines, (part * len(lines)) // 7) for part in range(1, 7) for lines in texts]
    return ["".join(lines[at : at + lines_each]) for lines, at in places[:count]]


def agreement(drafter: Drafter, text: Sequence[int], prompt_len: int) -> list[bool]:
    """For each token of `text` behind the prompt, whether the drafter, knowing all before it, chooses it too.

    A choice of confidence 0 is none: it is never sent.
    """
    choices = (drafter.expand(text[:at], [[]], False).proposals[0] for at in range(prompt_len, len(text)))
    return [
        choice.token == token and choice.confidence > 0.0
        for choice, token in zip(choices, text[prompt_len:], strict=True)
    ]
