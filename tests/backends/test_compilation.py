"""What is said before a model is compiled, and what is remembered of it."""

import logging
from pathlib import Path

import pytest

from backends.compilation import FILE, Compilation, folder_of
from specpair.engines.errors import ModelLoadError


def test_announcement_guesses_until_something_was_measured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "kept"
    compilation = Compilation("neuron_legacy", "llama", programs=9, layers=32, workers=2, folder=folder)
    assert compilation.announcement() == (
        "llama: 9 programs to compile, 2 at a time, about 11 minutes (a guess: nothing was measured here yet), much "
        f"less for those compiled before; they are kept in {folder}"
    )
    clock = iter((100.0, 420.0))
    with caplog.at_level(logging.INFO, "specpair"), compilation.measured(lambda: next(clock)):
        assert compilation.announcement() in caplog.messages[-1]
    assert caplog.messages[-1] == "llama: 9 programs compiled and loaded in 5 minutes"
    assert compilation.seconds == 320.0
    assert "about 5 minutes (as measured here)" in compilation.announcement()
    other = Compilation("torch", "llama", programs=1, layers=32, folder=folder)
    assert "about 128" not in other.announcement() and "about 2 minutes (a guess" in other.announcement()
    single = Compilation("neuron_legacy", "small", programs=3, layers=2, folder=folder)
    assert single.announcement().startswith("small: 3 programs to compile, about 12 s (as measured here)")


def test_programs_found_compiled_change_no_estimate(tmp_path: Path) -> None:
    compilation = Compilation("torch", "llama", programs=4, layers=2, folder=tmp_path)
    clock = iter((0.0, 2.0))
    with compilation.measured(lambda: next(clock)):
        pass
    assert not (tmp_path / FILE).exists()


def test_quicker_compilation_leaves_the_estimate(tmp_path: Path) -> None:
    """It found programs compiled: all of them would have taken longer."""
    compilation = Compilation("torch", "llama", programs=4, layers=2, folder=tmp_path)
    for took in (80.0, 40.0, 120.0):
        with compilation.measured(iter((0.0, took)).__next__):
            pass
        assert compilation.seconds == max(took, 80.0)


def test_failed_compilation_is_not_measured(tmp_path: Path) -> None:
    compilation = Compilation("torch", "llama", programs=4, layers=2, folder=tmp_path)
    with pytest.raises(RuntimeError), compilation.measured(iter((0.0, 50.0)).__next__):
        raise RuntimeError
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"torch": "x"}', '{"torch": -1}', '{"torch": Infinity}'])
def test_unreadable_times_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert "a guess" in Compilation("torch", "llama", programs=4, layers=2, folder=tmp_path).announcement()


def test_folder_is_the_given_one_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for given, folder in ((tmp_path / "x", tmp_path / "x"), (None, tmp_path / "specpair" / "compiled")):
        assert folder_of(given) == folder and folder.is_dir()


def test_folder_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was given is an error; without the usual one, programs are not kept."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ModelLoadError, match=r"^compile_cache .*file: cannot be written to: it is a file$") as caught:
        folder_of(file)
    assert caught.value.setting == "compile_cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert folder_of(None) is None
    assert "compiled programs cannot be kept in " in caplog.text and "Not a directory: set compile_cache" in caplog.text
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ModelLoadError, match="cannot be written to: Permission denied"):
        folder_of(tmp_path / "x")
