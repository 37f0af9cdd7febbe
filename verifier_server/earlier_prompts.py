"""The ids of earlier texts, so that a prompt that begins like one is sent without the ids that both share."""

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import UnknownPrefix, UnknownSession
from specpair.protocol.prefix import hash_of
from verifier_server.generation.prompts import P
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

MOST = 2**22  # ids of ended texts, in 16 MiB


class EarlierPrompts:
    """The texts of a table's sessions, and the latest that have left it. Used by the event loop's thread only."""

    def __init__(self, table: SessionTable, most: int = MOST) -> None:
        """`most`: ids of ended texts that are kept."""
        self._table, self._most = table, most
        self._ended: OrderedDict[tuple[Hashable, str], array[int]] = OrderedDict()  # by scope and session id
        self.held = 0  # ids in it

    def keep(self, session: Session) -> None:
        """Keep the text of a session that has left the table, if a client can name it."""
        if not session.lease.named:
            return
        key = session.scope, session.id
        self.held -= len(self._ended.pop(key, ()))
        self._ended[key] = array("i", session.tokens)
        self.held += len(self._ended[key])
        while self.held > self._most:
            self.held -= len(self._ended.popitem(last=False)[1])

    def whole(self, request: P, caller: Caller) -> P:
        """`request` with all ids of its prompt. Raises UnknownPrefix.

        A text is known to callers with the key and the salt of its session only.
        """
        prefix = request.prefix
        if prefix is None:
            return request
        held: Sequence[int] = self._text((caller.owner, request.cache_salt), prefix.session_id)[: prefix.length]
        if len(held) < prefix.length or hash_of(held) != prefix.hash:
            what = "no text of yours with this session_id and cache_salt is held that begins with these ids"
            raise UnknownPrefix.at("prefix", f"{what}: send the whole prompt as prompt_ids")
        return request.model_copy(update={"prompt_ids": [*held, *(request.prompt_ids or ())], "prefix": None})

    def _text(self, scope: tuple[str, str], session_id: str) -> Sequence[int]:
        """The ids of a text; none, if it is not held."""
        try:
            session = self._table.get(session_id, scope[0])
        except UnknownSession:
            return self._ended.get((scope, session_id), array("i"))
        return session.tokens if session.scope == scope else ()
