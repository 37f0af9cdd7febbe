"""ModeMemory: measurements are recalled by models, link and host; commands keep them, and no secrets with them."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.modes.memory import ModeMemory, Setting, memory_file
from specpair.speculation.policy.modes.estimate import ModeMeasurement
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Ticks, Verifier, serving

SETTING = Setting("target", "llama_cpp", 30.0, "draft", "served")
REMOTE = {"remote": ModeMeasurement(128.0, 2.0, 60.0, 80.0)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "modes.json"


@pytest.fixture
def memory(file: Path) -> ModeMemory:
    return ModeMemory(file, Ticks(1.7e9))


def test_kept_measurements_are_recalled(memory: ModeMemory, file: Path) -> None:
    assert memory.recall(SETTING, 0.02) == ({}, 0.0) and memory.acceptance_rates(SETTING) == {}
    memory.keep(SETTING, 0.02, REMOTE, 640)
    found, written = ModeMemory(file).recall(SETTING, 0.021)
    assert found == {"remote": ModeMeasurement(128.0, 2.0, 60.0, 80.0, remembered=True)} and written == 640
    assert memory.acceptance_rates(SETTING) == {"remote": 0.75}


@pytest.mark.parametrize(
    ("setting", "link"),
    [
        (replace(SETTING, target="other"), 0.02),
        (replace(SETTING, engine="torch"), 0.02),
        (replace(SETTING, draft="other"), 0.02),
        (replace(SETTING, served_draft=None), 0.02),
        (replace(SETTING, pass_ms=60.0), 0.02),
        (SETTING, 0.0004),
        (SETTING, 0.06),
    ],
)
def test_other_models_hosts_and_links_have_separate_entries(memory: ModeMemory, setting: Setting, link: float) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    assert memory.recall(setting, link)[0] == {}
    memory.keep(setting, link, {"fused": ModeMeasurement(50.0, 1.0)}, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote"} and set(memory.recall(setting, link)[0]) == {"fused"}


def test_accepted_share_is_recalled_over_any_link(memory: ModeMemory) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    memory.keep(SETTING, 0.09, {"fused": ModeMeasurement(50.0, 1.0, 10.0, 40.0)}, 0)
    assert memory.acceptance_rates(SETTING) == {"remote": 0.75, "fused": 0.25}


def test_modes_accumulate_and_only_new_measurements_are_written(memory: ModeMemory, file: Path) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    found, _ = memory.recall(SETTING, 0.02)
    short = ModeMeasurement(5.0, 0.1, 4.0, 5.0)
    memory.keep(SETTING, 0.0205, found | {"fused": ModeMeasurement(64.0, 1.0), "target": short}, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote", "fused"}
    assert len(json.loads(file.read_text())["entries"]) == 1


def test_dropped_rate_is_forgotten_but_its_accepted_share_kept(memory: ModeMemory) -> None:
    memory.keep(SETTING, 0.02, {**REMOTE, "fused": ModeMeasurement(200.0, 12.0, 150.0, 200.0)}, 0)
    found, _ = memory.recall(SETTING, 0.02)
    found["fused"].tokens = found["fused"].seconds = 0.0
    memory.keep(SETTING, 0.02, found | REMOTE, 0)
    found, _ = memory.recall(SETTING, 0.02)
    assert found["fused"] == ModeMeasurement(0.0, 0.0, 150.0, 200.0, remembered=True) and found["remote"].rate == 64.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 2, "entries": []}',
        b'{"version": 1, "entries": [{}]}',
        b'{"version": 1, "entries": ' + b"[" * 5000,
        b'{"version": 1, "entries": [{"setting": {"target": "t", "engine": null, "pass_ms": NaN, "draft": null, '
        b'"served_draft": null}, "link_ms": 1, "written": 0, "modes": {}}]}',
        b'{"version": 1, "entries": [{"setting": {"target": "target", "engine": "llama_cpp", "pass_ms": 30, '
        b'"draft": "draft", "served_draft": "served"}, "link_ms": 20, "written": 0, "modes": {"remote": '
        b'{"tokens_per_second": 0, "tokens": 1, "accepted": 0, "compared": 0, "when": 0}}}]}',
        b" " * (2 << 20),
    ],
    ids=["empty", "half", "binary", "list", "newer", "fields", "deep", "nan", "zero", "huge"],
)
def test_invalid_file_is_logged_once_and_replaced(
    memory: ModeMemory, file: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    assert memory.recall(SETTING, 0.02) == ({}, 0.0) and memory.acceptance_rates(SETTING) == {}
    memory.keep(SETTING, 0.02, REMOTE, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote"}
    (record,) = caplog.records
    assert "is no memory of modes and will be replaced" in record.getMessage() and "\n" not in record.getMessage()


def test_memory_file_is_in_the_cache_folder_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("/home/one")
    assert memory_file({"XDG_CACHE_HOME": "/cache"}, home) == Path("/cache/specpair/modes.json")
    for platform, environment, folder in (
        ("linux", {}, home / ".cache"),
        ("darwin", {}, home / "Library" / "Caches"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local")),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert memory_file(environment, home) == folder / "specpair" / "modes.json"


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
    more = "--mode", "remote", "--no-remember", "--prompt", "x", "--max-tokens", "4"
    ran = drafter("--verifier", verifier.url, *TOY, *more)
    assert ran.status == 0 and not cache.exists(), ran.err


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
