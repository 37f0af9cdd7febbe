"""The keys that a service accepts now: the one of a setting, and those of a file, which is reread when it changes."""

import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import KeyFileError
from specpair.http_service.keys.stored_key import DEFAULT, StoredKey, digest_of

_log = logging.getLogger("specpair.service")
LOOK_EVERY = 1.0  # seconds between two looks at the file

Stamp = tuple[int, int, int]  # what changes with a file: time in nanoseconds, size, inode


class KeyStore:
    """The keys of one service. Used in the event loop."""

    def __init__(
        self, single: str | None = None, file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`single`: the key that a setting gives.
        `clock`: in seconds.

        Raises KeyFileError.
        """
        self._file, self._clock = file, clock
        self._single = [] if single is None else [StoredKey(DEFAULT, digest_of(single))]
        self._stamp: Stamp | None = None if file is None else _stamp(file)
        self._keys = self._single + ([] if file is None else key_file.read(file))
        self._looked = clock()

    @property
    def in_use(self) -> bool:
        """Whether requests need a key. They do with an empty file, too."""
        return self._file is not None or bool(self._single)

    def find(self, given: str) -> StoredKey | None:
        """The stored key that `given` is; None: it is none.

        The time does not depend on which key it is: the hash is compared with each stored one.
        """
        self._look()
        digest, found = digest_of(given), None
        for key in self._keys:
            if secrets.compare_digest(key.digest, digest):
                found = key
        return found

    def _look(self) -> None:
        """Reread the file if it has changed. A file that cannot be read leaves the keys as they were."""
        now = self._clock()
        if self._file is None or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._single + key_file.read(self._file)
        except KeyFileError as error:
            _log.error("the keys stay as they were: %s", error)
        else:
            _log.info("the keys were read again: %d", len(self._keys))


def _stamp(file: Path) -> Stamp | None:
    """None: there is no such file, or it cannot be looked at."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
