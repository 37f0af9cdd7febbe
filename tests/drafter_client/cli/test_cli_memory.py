"""What commands measure: mode auto keeps measurements, a text that is measured reads its prompt."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.speculation.policy.modes.estimate import ModeMeasurement
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, serving


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ModeMeasurement, "worth_remembering", property(lambda _: True))  # however quick this machine is
    return tmp_path / "specpair" / "modes.json"


def _auto(*flags: str) -> list[str]:
    return [*TOY, "--prompt", "A secret of mine", "--max-tokens", "80", "--json", *flags]


def test_stored_measurements_hold_no_secrets(drafter: Command, cache: Path) -> None:
    with serving(api_key="k3y-of-mine") as verifier:
        ran = drafter(*_auto("--verifier", verifier.url, "--api-key", "k3y-of-mine"))
    assert ran.status == 0, ran.err
    kept, text = cache.read_text(), json.loads(ran.out)
    (entry,) = json.loads(kept)["entries"]
    assert entry["setting"]["target"] == "scripted-1" and entry["setting"]["draft"] == "scripted-1"
    assert set(entry["modes"]) <= {"remote", "target"} and entry["modes"]
    port = verifier.url.rpartition(":")[2]
    for secret in ("secret", "k3y", "127.0.0.1", port, str(text["token_ids"][:4])[1:-1], text["text"][:8]):
        assert secret not in kept


@pytest.mark.parametrize("flags", [["--no-remember"], ["--lockstep"], ["--draft-n", "3"]])
def test_runs_with_special_flags_store_nothing(
    drafter: Command, verifier: Verifier, cache: Path, flags: list[str]
) -> None:
    ran = drafter(*_auto("--verifier", verifier.url, *flags))
    assert ran.status == 0, ran.err
    assert not cache.exists()


def test_other_modes_store_nothing(drafter: Command, verifier: Verifier, cache: Path) -> None:
    ran = drafter("--verifier", verifier.url, *TOY, "--mode", "remote", "--prompt", "x", "--max-tokens", "40")
    assert ran.status == 0 and not cache.exists()
    ran = drafter("--mode", "remote", "--no-remember", "--prompt", "x")
    assert ran.status == 2 and "--no-remember: only --mode auto remembers" in ran.err


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
