"""Append whole lines to a text file with a header. Several runs may append at once, also from other processes."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from drafter_client.errors import TraceError
from specpair import shared_files

_writing = threading.Lock()  # the only lock on Windows: there, only one process at a time may write to a folder


def append(path: Path, header: str, lines: str = "") -> None:
    """Append `lines` to the file, all of them or none; `header` comes first if the file is new or empty.

    Without lines this checks that the file can be written. Raises TraceError if it cannot, or if it begins with another
    header.
    """
    try:
        with _opened(path) as file:
            end = file.seek(0, os.SEEK_END)
            text = lines
            if end == 0:
                text = header + lines
            else:
                file.seek(0)
                if file.read(len(header)) != header.encode():
                    raise TraceError(
                        f"{path}, line 1: these are not the columns that this version writes: name another folder"
                    )
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an earlier writer was killed: its unfinished line stays separate
                    text = "\n" + lines
            _write(file, text.encode(errors="backslashreplace"), end)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> TraceError:
    """The error for a file or folder of a trace that cannot be written."""
    return TraceError(f"the trace {path} cannot be written: {error.strerror}")


def _write(file: FileIO, text: bytes, end: int) -> None:
    try:
        while text:
            text = text[file.write(text) :]
    except BaseException:  # a full disk or Ctrl-C: remove the incomplete lines
        file.truncate(end)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """The file, open for reading and appending, and locked against other writers."""
    with _writing, open(path, "a+b", buffering=0) as file:
        shared_files.lock(file.fileno(), wait=True)
        yield file
