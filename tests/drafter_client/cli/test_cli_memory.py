"""Mode `auto`, the default, stores measurements in the user's cache folder; `--no-remember` stores none. No secrets."""

import json
import logging
from pathlib import Path

import pytest

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


def test_a_broken_memory_does_not_stop_a_text(
    drafter: Command, verifier: Verifier, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.mkdir()
    cache.write_text("no memory")
    ran = drafter(*_auto("--verifier", verifier.url))
    assert ran.status == 0 and json.loads(cache.read_text())["version"] == 1
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["no memory of modes" in each for each in warned] == [True]
