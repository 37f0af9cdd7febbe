"""`drafter tune`: one question before a download, what is measured without a known draft model, and the output."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from drafter_client.cli import tune
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from tests.drafter_client.cli.command_line import TOY, Command, Terminal
from tests.drafter_client.support import Verifier, running
from tests.stand_ins.hub import HubStandIn, serving
from verifier_server.settings import Settings

FILES = {"Small-F16.gguf": DEFAULT_DRAFT.read_bytes(), "Twin-Q4_0.gguf": DEFAULT_TWIN.read_bytes()}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A stand-in that this process takes for the hub, with an empty cache, and a catalogue of two of its models."""
    entry = '[[drafter]]\nname = "u/pair:{}"\nvocabulary = ""\ntargets = ["big*"]\nbytes = {}\nlicence = "MIT"\n'
    sizes = (("F16", len(FILES["Small-F16.gguf"])), ("Q4_0", len(FILES["Twin-Q4_0.gguf"])))
    (tmp_path / "catalogue.toml").write_text("".join(entry.format(*each) for each in sizes))
    monkeypatch.setenv("SPECPAIR_CATALOGUE", str(tmp_path / "catalogue.toml"))
    monkeypatch.setattr("drafter_client.tuning.TEXTS", ("def main():",))
    with serving({"u/pair": FILES}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


@pytest.fixture(scope="module")
def big() -> Iterator[Verifier]:
    with running(Settings(model=DEFAULT_TARGET, alias="big", context=256, threads=1)) as verifier:
        yield verifier


@pytest.mark.parametrize(("answer", "fetched"), [("\n", True), ("Yes\n", True), ("n\n", False), ("", False)])
def test_one_question_decides_about_the_download(
    stand_in: HubStandIn,
    big: Verifier,
    drafter: Command,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    fetched: bool,
) -> None:
    monkeypatch.setattr(Terminal, "readline", lambda _self: answer)
    ran = drafter("tune", "--verifier", big.url, "--threads", "1")
    assert ran.status == 0, ran.err
    size = f"{len(FILES['Small-F16.gguf']) / 1e6:.1f} MB"
    assert ran.err.count("? [Y/n]") == 1 and f"draft model u/pair:F16, {size}, MIT: fetch? [Y/n]" in ran.err
    assert stand_in.sent.keys() == ({"Small-F16.gguf"} if fetched else set())
    assert ("u/pair:F16: " in ran.out.splitlines()[0]) == fetched
    assert ran.out.startswith("stdlib-draft-q8_0: ") != fetched  # the one that ships
    left = "u/pair:Q4_0" if fetched else "u/pair:F16"
    assert f"not fetched, so not measured: {left}" in ran.out
    stand_in.asked.clear()
    if fetched:
        assert "[Y/n]" not in drafter("tune", "--verifier", big.url).err and stand_in.asked == []


def test_yes_fetches_without_a_question_and_json_is_the_result(
    stand_in: HubStandIn, big: Verifier, drafter: Command
) -> None:
    ran = drafter("tune", "--yes", "--json", "--verifier", big.url, "--threads", "1", stdin=b"")
    told = json.loads(ran.out)
    assert "[Y/n]" not in ran.err and stand_in.sent["Small-F16.gguf"] == len(FILES["Small-F16.gguf"])
    first = told["measured"][0]
    assert (told["target"], first["draft"], first["mode"]) == ("big", "u/pair:F16", "remote")
    assert first["low"] <= first["gain"] <= first["high"] and told["round_trip_ms"] > 0
    assert told["kept"] is None or told["kept"] in told["measured"]


def test_without_a_terminal_nothing_is_fetched_unasked(stand_in: HubStandIn, big: Verifier, drafter: Command) -> None:
    ran = drafter("tune", "--verifier", big.url, "--threads", "1", stdin=b"")
    assert ran.status == 0 and "give --yes" in ran.err and stand_in.sent == {}


def test_a_download_that_was_cut_goes_on(
    stand_in: HubStandIn, big: Verifier, drafter: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.hub.repository.PAUSES", ())
    stand_in.cuts = [300_000]
    cut = drafter("tune", "--yes", "--verifier", big.url, "--threads", "1")
    ran = drafter("tune", "--yes", "--verifier", big.url, "--threads", "1")
    assert (cut.status, ran.status) == (0, 0) and ran.out.startswith("u/pair:F16: ")
    assert stand_in.sent["Small-F16.gguf"] <= len(FILES["Small-F16.gguf"]) + 1


def test_without_a_known_draft_model_text_is_looked_up(verifier: Verifier, drafter: Command) -> None:
    ran = drafter("tune", "--verifier", verifier.url)
    assert ran.status == 0, ran.err
    first, measured, _ = ran.out.splitlines()
    assert "look for a smaller model of its family" in first and "n-gram lookup drafts instead" in first
    assert measured.startswith("n-gram lookup: ") and "times the target alone" in measured


def test_a_named_draft_model_is_the_only_one_that_is_measured(verifier: Verifier, drafter: Command) -> None:
    ran = drafter("tune", "--verifier", verifier.url, *TOY)
    assert ran.status == 0, ran.err
    assert ran.out.startswith("1: ") and len(ran.out.splitlines()) == 2
    assert tune.tune_parser().prog == "drafter tune"
