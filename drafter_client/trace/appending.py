"""A text file to which several runs append whole lines under one header, in this process and in others."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from drafter_client import file_lock
from drafter_client.errors import TraceError

_writing = threading.Lock()  # all there is on Windows: there, one process at a time may write to a folder


def append(path: Path, header: str, lines: str = "") -> None:
    """Write `lines` at the end of the file, all of them or none, below `header` if the file is new.

    Without lines it is made sure that this can be done. Raises ProfileError where it cannot, or where the file begins
    with another header.
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
                if file.read(1) != b"\n":  # the writer before was killed: its half line stays one of its own
                    text = "\n" + lines
            _write(file, text.encode(errors="backslashreplace"), end)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> TraceError:
    """The error for a file or folder of a profile that cannot be written."""
    return TraceError(f"the profile {path} cannot be written: {error.strerror}")


def _write(file: FileIO, text: bytes, end: int) -> None:
    try:
        while text:
            text = text[file.write(text) :]
    except BaseException:  # a full disk, an impatient user
        file.truncate(end)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """The file, for reading and for writing at its end, and nobody else's meanwhile."""
    with _writing, open(path, "a+b", buffering=0) as file:
        file_lock.take(file.fileno(), wait=True)
        yield file
