"""A full disk: every program that writes files meets one, says so in a line, and its text is the target's own.

A disk is full for one process where it may write files of so many bytes only (RLIMIT_FSIZE; the error is EFBIG in place
of ENOSPC). Each program runs in a folder of its own, caches included: with nothing written at all, or with the first
bytes. What it must not do without fails with a status and one line; what helps only (measurements, indexes, caches) is
gone without. Then the same command runs again with room, and everything is there.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from backends.registry import load
from models import DEFAULT_TARGET
from specpair.child_processes.serving import verifier
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.paths import ROOT

PROMPTS = ("def f(x):", "import os", "class A:")
TOKENS = 24
_LIMITED = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
most, module = int(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
if most >= 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Ran(NamedTuple):
    """How a program ended, and what it said."""

    status: int
    out: str
    errors: str

    @property
    def traceback(self) -> bool:
        return "Traceback" in self.errors or "Traceback" in self.out


class Case(NamedTuple):
    """A program that writes files.

    `needed`: whether it fails where it cannot write.
    `size`: bytes that a file may have.
    `whole`: whether what it wrote, and its text, are right once it has succeeded: takes its folder and its output.
    """

    module: str
    arguments: Sequence[str]
    needed: bool
    size: int
    whole: Callable[[Path, str], bool]


def _run(case: Case, folder: Path, url: str, most: int) -> Ran:
    arguments = [each.format(folder=folder, url=url) for each in case.arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _LIMITED, str(most), case.module, *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def _texts() -> list[list[int]]:
    """The target's own."""
    options = LoadOptions(model=DEFAULT_TARGET, deterministic=True, threads=1, context_length=512)
    with closing(load("llama_cpp", options)) as target:
        return [plain(target, target.vocabulary.encode(each), TOKENS, Sampling(seed=7)) for each in PROMPTS]


def _cases(expected: list[list[int]]) -> dict[str, Case]:
    def ids(out: str) -> list[list[int]]:
        return [json.loads(line)["token_ids"] for line in out.splitlines() if line.startswith("{")]

    def one(_: Path, out: str) -> bool:
        return ids(out) == expected[:1]

    def recorded(folder: Path, out: str) -> bool:
        return one(folder, out) and any((folder / "profile").iterdir())

    def results(folder: Path, _: str) -> bool:
        return ids((folder / "results.jsonl").read_text()) == expected

    def keys(folder: Path, _: str) -> bool:
        return "laptop" in (folder / "keys.toml").read_text()

    text = ("--verifier", "{url}", "--max-tokens", str(TOKENS), "--seed", "7")
    one_text, lookup = (*text, "--json", "--prompt", PROMPTS[0]), ("--backend", "ngram")
    many = (*text, *lookup, "--prompt-file", "{folder}/prompts.txt", "--output", "{folder}/results.jsonl")
    new_key = ("key", "new", "laptop", "--keys-file", "{folder}/keys.toml")
    return {
        "a text, and its caches": Case("drafter_client", one_text, False, 0, one),
        "a draft corpus": Case(
            "drafter_client", (*one_text, *lookup, "--draft-corpus", "{folder}/corpus"), True, 0, one
        ),
        "a profile": Case("drafter_client", (*one_text, *lookup, "--profile", "{folder}/profile"), True, 300, recorded),
        "results": Case("drafter_client", many, True, 300, results),
        "keys": Case("verifier_server", new_key, True, 0, keys),
    }


def run() -> tuple[list[str], list[str]]:
    """Run all cases. Returns figures, and faults."""
    faults = list[str]()
    with verifier(deterministic=1, threads=1, context=512, slots=2) as server, tempfile.TemporaryDirectory() as folders:
        for name, case in _cases(_texts()).items():
            folder = Path(folders) / name
            (folder / "corpus").mkdir(parents=True)
            (folder / "corpus" / "f.py").write_text("def f(x):\n    return x\n" * 50)
            (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
            faults += [f"{name}: {wrong}" for wrong in _case(case, folder, server.url)]
    return [f"{len(_cases([]))} programs on a full disk, and with room again"], faults


def _case(case: Case, folder: Path, url: str) -> list[str]:
    """What is wrong with a case on a full disk, and with room afterwards."""
    wrong = []
    full = _run(case, folder, url, case.size)
    if full.traceback:
        wrong.append(f"a traceback: {full.errors[-600:]}")
    if full.status == 0 and not case.whole(folder, full.out):
        wrong.append(f"it says that all went well, and it did not: {full.out!r} {full.errors[-300:]}")
    if full.status != 0 and not case.needed:
        wrong.append(f"it fails without what it can do without: {full.status}, {full.errors[-300:]}")
    if full.status != 0 and not full.errors.strip():
        wrong.append(f"it ends with {full.status} and says nothing")
    if full.status == 0:
        return wrong
    again = _run(case, folder, url, -1)
    if again.status or not case.whole(folder, again.out):
        wrong.append(f"with room again: {again.status}, {again.out!r} {again.errors[-600:]}")
    return wrong
