"""The draft models, prompts and services of experiments."""

import re
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drafter_client.draft_sources import load_model
from lab.benchmarks.harness.texts import connected
from lab.simulator.paced.engine import TARGET_25
from models import DEFAULT_DRAFT, DEFAULT_TWIN
from models.training.corpus import HELD_OUT
from specpair.child_processes.children import child
from specpair.child_processes.serving import Server, verifier
from specpair.drafters.base import Drafter
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}  # the twin is the target in 4 bits
BRANCHES = 6  # continuations that a drafter may look behind at once
CONTEXT = 1024
HELD_OUT_FILES = ("configparser.py", "fractions.py", "_osx_support.py")


def load_drafter(path: Path) -> Backend:
    """A draft model as shipped, on one thread."""
    return load_model("llama_cpp", LoadOptions(context_length=CONTEXT, threads=1), path, BRANCHES)


def held_out_prompts(count: int, lines_each: int = 4) -> list[str]:
    """Prompts of `lines_each` lines, from files that every Python has and the default pair was not trained on."""
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


@contextmanager
def paced(slots: int) -> Iterator[Server]:
    """A verifier of the shipped target, paced to 25 ms a step."""
    settings = {"slots": slots, "threads": 1, "context": 1024, "insecure": "yes"}
    with verifier("lab.simulator.paced.engine:app", PACED_TARGET=TARGET_25, **settings) as server:
        with connected(server.url):
            pass  # it has loaded its model
        yield server


@contextmanager
def drafter_serve(url: str, texts: int, queue: int, **others: object) -> Iterator[Server]:
    """`drafter serve` in front of a verifier, with the shipped draft model on one thread.

    `others`: further flags by their names; True: without a value.
    """
    flags = {"verifier": url, "port": 0, "texts": texts, "queue": queue, "threads": 1, "branches": 2, **others}
    named = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    arguments = [name if value is True else f"{name}={value}" for name, value in named.items()]
    with child("-m", "drafter_client", "serve", *arguments, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = ""
        for line in process.stderr:
            if (found := re.search(r"(http://\S+)/v1", line)) is not None:
                yield Server(process, found[1])
                return
        raise RuntimeError(f"drafter serve ended before it served: {line.strip()}")
