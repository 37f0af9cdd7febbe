"""A stand-in for Mountpoint for Amazon S3: a folder of a disk that refuses what Mountpoint refuses in its mounts.

New files are written from beginning to end; files can be read and deleted, and a folder is gone with its last file.
There is no renaming, linking, locking, changing of modes and times, no writing to a file that exists, and none at a
place of one's choice.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_REFUSED = ("rename", "replace", "link", "symlink", "chmod", "utime", "truncate")


@contextmanager
def mounted(folder: Path, *, allow_delete: bool = True) -> Iterator[Path]:
    """`folder` as a mount of a bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _REFUSED:
            patch.setattr(os, name, _refusing(name, getattr(os, name), folder))
        patch.setattr(os, "unlink", _unlinking(os.unlink, folder, allow_delete))
        opened = _opening(io.open, folder)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        yield folder


def _inside(path: Any, folder: Path) -> bool:
    return isinstance(path, (str, os.PathLike)) and Path(path).absolute().is_relative_to(folder.absolute())


def _refusing(name: str, real: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if any(_inside(argument, folder) for argument in arguments):
            raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}", str(arguments[0]))
        return real(*arguments, **named)

    return call


def _unlinking(real: Callable[..., None], folder: Path, allowed: bool) -> Callable[..., None]:
    def call(path: Any, *arguments: Any, **named: Any) -> None:
        inside = _inside(path, folder)
        if inside and not allowed and os.path.exists(path):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        real(path, *arguments, **named)
        above = Path(path).parent
        while inside and above != folder and not any(above.iterdir()):
            above.rmdir()
            above = above.parent

    return call


def _opening(real: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def call(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        inside = _inside(file, folder)
        if inside and (set(mode) & set("a+") or ("w" in mode and os.path.exists(file))):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(file))
        found = real(file, mode, *arguments, **named)
        if inside and set(mode) & set("wx"):
            found.seek = _refused_seek  # nor is there a way to write elsewhere
        return found

    return call


def _refused_seek(*_: Any) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
