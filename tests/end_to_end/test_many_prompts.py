"""Files of prompts with the shipped pair: each text is the target's, whatever runs concurrently."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import Verifier
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from tests.paths import ROOT

pytestmark = pytest.mark.slow

MODEL = ["--threads", "1", "--context", str(CONTEXT)]
WAYS = {
    "model": MODEL,
    "model, three at a time": [*MODEL, "--concurrency", "3"],
    "ngram, three at a time": ["--backend", "ngram", "--concurrency", "3"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_each_text_of_a_prompt_file_equals_plain_decoding(
    verifier: Verifier,
    reference: Reference,
    count_flips: Callable[[int, list[float]], None],
    tmp_path: Path,
    way: list[str],
) -> None:
    for line in _written(verifier, tmp_path, PROMPTS[:6], way):
        sampling = Sampling(seed=10 + line["index"], temperature=0.8)
        flips = reference.flips(reference.encode(line["prompt"]), line["token_ids"], sampling)
        count_flips(len(line["token_ids"]), flips)
        assert all(margin < EPSILON for margin in flips), (line["index"], flips)


def _written(verifier: Verifier, folder: Path, texts: Sequence[str], way: list[str]) -> list[dict[str, Any]]:
    """The results of the texts, in order."""
    lines_in = [{"prompt": text, "id": f"p{at}", "seed": 10 + at} for at, text in enumerate(texts)]
    prompts, output = folder / "prompts.jsonl", folder / "results.jsonl"
    prompts.write_text("".join(json.dumps(each) + "\n" for each in lines_in), encoding="utf-8")
    command = [sys.executable, "-m", "drafter_client", "--verifier", verifier.url, "--prompt-file", str(prompts)]
    command += ["--max-tokens", "32", "--temperature", "0.8", "--output", str(output), *way]
    sessions = verifier.sessions  # of other clients, whose sessions have not expired yet
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert "mean acceptance length" in ran.stderr and verifier.sessions == sessions
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [(line["index"], line["id"], line["prompt"]) for line in lines] == [
        (at, each["id"], each["prompt"]) for at, each in enumerate(lines_in)
    ]
    return lines
