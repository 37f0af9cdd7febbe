"""Open invitations, in a file that a running service and its commands share. It holds hashes of tokens only."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from specpair.http_service.sharing.link import new_token
from specpair.shared_files import PRIVATE, alone, replacing

SECONDS = 3600.0  # for which an invitation is open, unless told


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the holder of a token may do."""

    digest: str  # SHA-256 of the token, in hexadecimal; the token is random, so a fast hash is safe
    ends: float  # Unix time
    uses: int  # left
    name: str = ""  # of the key that it gives; empty: the guest says its name


class Invitations:
    """The invitations in one file. Any process may use it at any time. All methods raise OSError."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix time, in seconds."""
        self._path, self._clock = path, clock

    def invite(self, name: str = "", seconds: float = SECONDS, uses: int = 1) -> bytes:
        """A new token. `name`: of the key that it gives."""
        token = new_token()
        with self._changing() as invitations:
            invitations.append(Invitation(_digest(token), self._clock() + seconds, uses, name))
        return token

    def find(self, token: bytes) -> Invitation | None:
        """The open invitation of a token; None: it was never given, is used up, or has ended."""
        digest, found = _digest(token), None
        for each in self._read():  # all of them, so that the time says nothing
            if secrets.compare_digest(each.digest, digest):
                found = each
        return found

    def use(self, invitation: Invitation) -> bool:
        """Use an invitation once. Returns whether it was still open: another guest may have come first."""
        with self._changing() as invitations:
            for at, each in enumerate(invitations):
                if each.digest == invitation.digest:
                    invitations[at] = replace(each, uses=each.uses - 1)
                    return True
        return False

    def withdraw(self) -> None:
        """End all invitations."""
        with self._changing() as invitations:
            invitations.clear()

    def _read(self) -> list[Invitation]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return [each for each in (Invitation(**entry) for entry in content) if each.ends > self._clock()]

    @contextmanager
    def _changing(self) -> Iterator[list[Invitation]]:
        """A context that yields the open invitations; those that have uses left at its end are kept."""
        with alone(self._path):
            invitations = self._read()
            yield invitations
            with replacing(self._path, PRIVATE) as file:
                file.write(json.dumps([asdict(each) for each in invitations if each.uses > 0]).encode())


def _digest(token: bytes) -> str:
    return sha256(token).hexdigest()
