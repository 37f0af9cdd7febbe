"""The results file on disk: each result is written at once, and an interrupted run continues from it."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from drafter_client.batch.prompts import Prompt
from drafter_client.batch.results import Models, Result, check, encode, latest, parse
from drafter_client.errors import BadOutput, OutputBusy
from specpair import shared_files


class ResultsFile:
    """Opens, locks and reads the file, so that one that cannot be used is refused before any work.

    No other run may use it until `close`. Nothing is written before `begin`; without `begin`, a new file is removed
    again. Raises BadOutput, OutputBusy, and ForeignOutput where the file holds anything else than results.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path.resolve()  # so that the file is replaced, and not a link to it
        self._begun = False
        self._descriptor: int | None = None
        with self._errors_named():
            if self._path.exists() and not self._path.is_file():
                raise BadOutput(f"{self.name} is no file: results are kept in one")
            self._is_new = not self._path.exists()
            self._descriptor = self._opened()
            try:
                self._results, self._whole = parse(self._path.read_bytes(), self.name)
            except BaseException:
                self.close()
                raise

    def _opened(self) -> int:
        """Open and lock the file, again if another run replaced or removed it between these two steps."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self._path, flags, 0o666)
            try:
                if not shared_files.lock(descriptor, wait=False):
                    raise OutputBusy(f"another run writes to {self.name}: wait for its end, or give another --output")
                if self._path.exists() and os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def begin(self, prompts: Sequence[Prompt], models: Models) -> dict[int, Result]:
        """Drop a last line that was cut off. Returns the results so far, by prompt index.

        Raises OtherResults where the results are of other prompts or settings.
        """
        assert self._descriptor is not None, "it was closed"
        check(self._results, prompts, models, self.name)
        with self._errors_named():
            os.ftruncate(self._descriptor, self._whole)
        self._begun = True
        return latest(self._results)

    def add(self, result: Result) -> None:
        """Write a result at once: other processes see it, and it outlives this one."""
        assert self._begun and self._descriptor is not None, "between begin and close"
        self._results.append(result)
        line = encode(result)
        with self._errors_named():
            while line:
                line = line[os.write(self._descriptor, line) :]

    def put_in_order(self) -> None:
        """Keep the one line of each prompt that counts, in order, and close. The file is replaced whole or not."""
        ordered = list(latest(self._results).values())
        if ordered == self._results:
            self.close()
            return
        with self._errors_named(), shared_files.replacing(self._path) as new:
            new.writelines(encode(result) for result in ordered)
            new.flush()
            os.fsync(new.fileno())
            if sys.platform == "win32":  # where an open file cannot be replaced, and files are not locked
                self.close()
        self.close()

    def close(self) -> None:
        """Unlock and close the file. A second close does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._is_new and not self._begun:
            with suppress(OSError):  # an empty file then stays, which does no harm
                os.unlink(self._path)
        os.close(descriptor)

    def __enter__(self) -> "ResultsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadOutput(f"results cannot be kept in {self.name}: {error.strerror or error}") from None
