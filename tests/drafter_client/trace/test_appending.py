"""Files to which several writers append: one header, and whole lines, all or none."""

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from drafter_client.errors import TraceError
from drafter_client.trace import appending
from drafter_client.trace.appending import append

HEAD = "a,b\n"


def test_header_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append(path, HEAD)
    assert path.read_text() == HEAD
    append(path, HEAD, "1,2\n3,4\n")
    append(path, HEAD)
    append(path, HEAD, "5,6\n")
    assert path.read_text() == "a,b\n1,2\n3,4\n5,6\n"


def test_empty_file_gets_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.touch()
    append(path, HEAD, "1,2\n")
    assert path.read_text() == "a,b\n1,2\n"


def test_unfinished_line_of_a_killed_writer_stays_separate(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,")
    append(path, HEAD, "3,4\n")
    assert path.read_text() == "a,b\n1,\n3,4\n"


def test_file_with_another_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for other in ("a,c\n1,2\n", "a", "\n"):
        path.write_text(other)
        with pytest.raises(TraceError, match=r"t\.csv, line 1: these are not the columns"):
            append(path, HEAD, "1,2\n")
        assert path.read_text() == other


def test_characters_without_encoding_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append(path, HEAD, "\ud800,é\n")
    assert path.read_text(encoding="utf-8") == "a,b\n\\ud800,é\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_incomplete_lines_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    class Full(FileIO):
        """Writes three bytes, then fails."""

        written = False

        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.written:
                raise error
            self.written = True
            return super().write(data[:3])

    path = tmp_path / "t.csv"
    append(path, HEAD, "1,2\n")
    monkeypatch.setattr(appending, "open", lambda path, mode, buffering: Full(path, "a+"), raising=False)
    expected = TraceError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        append(path, HEAD, "3,4\n")
    assert path.read_text() == "a,b\n1,2\n"


def test_error_names_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"the trace .* cannot be written: Is a directory"):
        append(tmp_path, HEAD)
