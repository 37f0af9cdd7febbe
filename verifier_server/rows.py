"""Which session's KV cache lives in which row. When rows run out, the least recently used one is given away."""

from collections import OrderedDict
from collections.abc import Callable, Collection

from verifier_server.sessions import Session


class RowPool:
    """Rows of one backend. Used by the engine's thread only."""

    def __init__(self, rows: int, release: Callable[[int], None]) -> None:
        self._free = list(reversed(range(rows)))
        self._owners: OrderedDict[int, Session] = OrderedDict()  # least recently used first
        self._release = release

    def take(self, session: Session, busy: Collection[int]) -> bool:
        """Give `session` a row if it has none; False when every other row is in `busy` (part of this pass)."""
        if session.row is None:
            if not self._free and not self._evict(busy):
                return False
            session.row, session.held = self._free.pop(), 0
            self._owners[session.row] = session
        self._owners.move_to_end(session.row)
        return True

    def drop(self, session: Session) -> None:
        """Take the row of `session` back; its tokens stay, the KV is recomputed when next needed."""
        if session.row is None:
            return
        row, session.row, session.held = session.row, None, 0
        del self._owners[row]
        self._release(row)
        self._free.append(row)

    def _evict(self, busy: Collection[int]) -> bool:
        for row, owner in self._owners.items():
            if row not in busy:
                self.drop(owner)
                return True
        return False
