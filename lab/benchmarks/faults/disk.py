"""A full disk: every program that writes files reports it in one line, and its text equals the target's.

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
from collections.abc import Callable, Iterator, Sequence
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


class Case(NamedTuple):
    """A program that writes files.

    `needed`: whether it fails where it cannot write.
    `size`: bytes that a file may have.
    `whole`: whether what it wrote is right once it has succeeded: takes its folder and its output.
    """

    module: str
    arguments: Sequence[str]
    needed: bool
    size: int
    whole: Callable[[Path, str], bool]

    def run(self, folder: Path, url: str, most: int) -> "subprocess.CompletedProcess[str]":
        arguments = [each.format(folder=folder, url=url) for each in self.arguments]
        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", _LIMITED, str(most), self.module, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    def faults(self, folder: Path, url: str) -> Iterator[str]:
        """The faults on a full disk, and with room afterwards."""
        full = self.run(folder, url, self.size)
        said = f"{full.returncode}, {full.stdout!r} {full.stderr[-600:]}"
        if "Traceback" in full.stdout + full.stderr:
            yield f"a traceback: {said}"
        if full.returncode == 0:
            if not self.whole(folder, full.stdout):
                yield f"it says that all went well, and it did not: {said}"
            return
        if not self.needed or not full.stderr.strip():
            yield f"it fails without what it can do without, or says nothing: {said}"
        again = self.run(folder, url, -1)
        if again.returncode or not self.whole(folder, again.stdout):
            yield f"with room again: {again.returncode}, {again.stdout!r} {again.stderr[-600:]}"


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
    one_text = (*text, "--json", "--prompt", PROMPTS[0])
    lookup, many = ("--backend", "ngram"), ("--prompt-file", "{folder}/prompts.txt")
    corpus, profile = ("--draft-corpus", "{folder}/corpus"), ("--profile", "{folder}/profile")
    new_key = ("key", "new", "laptop", "--keys-file", "{folder}/keys.toml")
    return {
        "a text, and its caches": Case("drafter_client", one_text, False, 0, one),
        "a draft corpus": Case("drafter_client", (*one_text, *lookup, *corpus), True, 0, one),
        "a profile": Case("drafter_client", (*one_text, *lookup, *profile), True, 300, recorded),
        "results": Case(
            "drafter_client", (*text, *lookup, *many, "--output", "{folder}/results.jsonl"), True, 300, results
        ),
        "keys": Case("verifier_server", new_key, True, 0, keys),
    }


def run() -> tuple[list[str], list[str]]:
    """Run all cases. Returns figures, and faults."""
    options = LoadOptions(model=DEFAULT_TARGET, deterministic=True, threads=1, context_length=512)
    with closing(load("llama_cpp", options)) as target:
        expected = [plain(target, target.vocabulary.encode(each), TOKENS, Sampling(seed=7)) for each in PROMPTS]
    cases, faults = _cases(expected), list[str]()
    with verifier(deterministic=1, threads=1, context=512, slots=2) as server, tempfile.TemporaryDirectory() as folders:
        for name, case in cases.items():
            folder = Path(folders) / name
            (folder / "corpus").mkdir(parents=True)
            (folder / "corpus" / "f.py").write_text("def f(x):\n    return x\n" * 50)
            (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
            faults += [f"{name}: {wrong}" for wrong in case.faults(folder, server.url)]
    return [f"{len(cases)} programs on a full disk, and with room again"], faults
