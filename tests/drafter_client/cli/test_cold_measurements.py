"""A text that is measured reads its prompt: if it found what the one before had read, the figures would compare two
different things."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, serving

PROMPT = "def a(b): " * 12


@pytest.fixture
def verifier() -> Iterator[Verifier]:
    with serving(ScriptedBackend(Script(seed=1), slots=8)) as running:
        yield running


def hits(verifier: Verifier) -> float:
    """Tokens of prompts that the verifier did not read."""
    text = httpx.get(f"{verifier.url}/metrics", trust_env=False).text
    return sum(map(float, re.findall(r"^specpair_prefix_cache_hits_total{.*} (\S+)$", text, re.MULTILINE)))


def test_neither_text_of_a_baseline_finds_its_prompt_read(drafter: Command, verifier: Verifier) -> None:
    flags = "--verifier", verifier.url, *TOY, "--prompt", PROMPT, "--max-tokens", "4", "--json"
    cached = [json.loads(drafter(*flags, *more).out)["cached_tokens"] for more in ([], [], ["--baseline"])]
    assert cached[0] == 0 < cached[1], "without a baseline it is found"
    assert (cached[2], hits(verifier)) == (0, cached[1])


def test_no_text_of_a_comparison_finds_its_prompt_read(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(PROMPT)
    flags = "--prompt-file", str(prompts), "--max-tokens", "4", "--runs", "2"
    ran = drafter("compare", "--verifier", verifier.url, *TOY, *flags)
    assert ran.status == 0, ran.err
    assert hits(verifier) == 0
