"""A results file on disk: every result is there at once, and a run that was cut off goes on from it."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from drafter_client.errors import BadOutput
from drafter_client.prompts import Prompt
from drafter_client.results import Models, Result, check, encode, latest, parse


class ResultsFile:
    """What it holds is read when it is made, so that a file that cannot be used is refused before anything is done.

    Nothing is written until `begin`. Raises BadOutput, ForeignOutput where the file is none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path.resolve()  # to replace a file that a link names, not the link
        with self._told():
            if self._path.exists() and not self._path.is_file():
                raise BadOutput(f"{self.name} is no file: results are kept in one")
            self._data = self._path.read_bytes() if self._path.exists() else b""
        self._results, self._whole = parse(self._data, self.name)
        self._descriptor: int | None = None

    def begin(self, prompts: Sequence[Prompt], models: Models) -> dict[int, Result]:
        """Go on: drop a last line that was cut off; returns what each prompt came to so far.

        Raises OtherResults where something else was asked for then.
        """
        check(self._results, prompts, models, self.name)
        with self._told():
            self._descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666
            )
            os.ftruncate(self._descriptor, self._whole)
        return latest(self._results)

    def add(self, result: Result) -> None:
        """Write it, at once: another process sees it, and an end of this one takes nothing of it."""
        assert self._descriptor is not None, "begin comes first"
        self._results.append(result)
        line = encode(result)
        with self._told():
            while line:
                line = line[os.write(self._descriptor, line) :]

    def put_in_order(self) -> None:
        """Leave one line of each prompt, in order: the file is replaced as a whole, or stays as it is."""
        ordered = list(latest(self._results).values())
        if ordered == self._results:
            return
        with self._told():
            handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            try:
                with os.fdopen(handle, "wb") as new:
                    new.writelines(encode(result) for result in ordered)
                    new.flush()
                    os.fsync(new.fileno())
                shutil.copymode(self._path, name)
                os.replace(name, self._path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name)
                raise
        self._results = ordered

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "ResultsFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadOutput(f"results cannot be kept in {self.name}: {error.strerror or error}") from None
