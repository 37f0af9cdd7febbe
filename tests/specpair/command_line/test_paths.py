"""`~` in a path is the home folder, wherever the path is written: a shell expands it only as a word of its own."""

from pathlib import Path

import pytest

from drafter_client.cli.commands import compare_options, drafter_options, serve_options, solo_options
from drafter_client.cli.flags import keys_file
from verifier_server.settings import from_flags


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_in_flags_of_the_drafter(home: Path) -> None:
    written = ["--draft-model=~/d", "--prompt-file=~/p", "--output=~/o", "--profile=~/r", "--compile-cache=~/c"]
    options = drafter_options(written)
    found = (options.draft_model, options.prompt_file, options.output, options.profile, options.compile_cache)
    assert found == tuple(home / name for name in "dporc")
    assert drafter_options(["--prediction-file", "~/x"]).prediction_file == home / "x"
    assert solo_options(["--model=~/x"]).model == home / "x"
    assert compare_options(["--prompt-file=~/x"]).prompt_file == [home / "x"]


def test_in_variables_and_in_the_name_of_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "mine.toml").write_text("[verifier]\nrows = 3\n[drafter]\ntexts = 3\n")
    assert serve_options(["--config=~/mine.toml"]).texts == 3
    settings, _ = from_flags(["--config=~/mine.toml"], {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": "~/m"})
    assert (settings.slots, settings.model) == (3, home / "m")
    assert from_flags([], {"SPECPAIR_CONFIG": "~/mine.toml", "VERIFIER_BACKEND": "scripted"})[0].slots == 3
    assert keys_file(None, {"DRAFTER_KEYS_FILE": "~/k"}) == home / "k"
    monkeypatch.setenv("DRAFTER_DRAFT_MODEL", "~/d")
    assert drafter_options(["--prompt", "x"]).draft_model == home / "d"


def test_in_flags_of_the_verifier(home: Path) -> None:
    flags = ["--model=~/m", "--keys-file=~/k", "--compile-cache=~/c", "--backend=scripted"]
    settings, _ = from_flags(flags, {})
    assert (settings.model, settings.keys_file, settings.compile_cache) == (home / "m", home / "k", home / "c")
