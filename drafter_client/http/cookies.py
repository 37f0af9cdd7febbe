"""Cookies by which a load balancer keeps a session at one verifier. They are kept by session, and sent back with it."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

MOST_SESSIONS = 4096
_MOST_COOKIES, _LONGEST = 8, 4096  # of a session; bytes of one: what exceeds them is no cookie of a load balancer
AFFINITY = (b"X-Session-Affinity", b"cookie")  # says that this client keeps cookies, to a balancer that asks
Cookies = dict[bytes, bytes]  # values by name


class SessionCookies:
    """The cookies of the latest sessions. May be used from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Cookies] = OrderedDict()
        self._changing = threading.Lock()

    def header(self, url: str, session_id: str) -> list[tuple[bytes, bytes]]:
        """The header with a session's cookies for the service at `url`; none if it has none."""
        kept = self._kept.get((url, session_id))
        return [(b"Cookie", b"; ".join(b"%s=%s" % each for each in kept.items()))] if kept else []

    def keep(self, url: str, session_id: str, set_cookies: Iterable[str]) -> None:
        """Keep what the headers Set-Cookie of a response to the session say."""
        for each in set_cookies:
            with self._changing:
                known = self._kept.get((url, session_id), {})
                self._kept[url, session_id] = _changed(known, each)  # a new one: another thread may read the old one
                self._kept.move_to_end((url, session_id))
                if len(self._kept) > MOST_SESSIONS:
                    self._kept.popitem(last=False)

    def forget(self, url: str, session_id: str) -> None:
        """The session is over."""
        with self._changing:
            self._kept.pop((url, session_id), None)


def _changed(cookies: Cookies, header: str) -> Cookies:
    """`cookies` after a header Set-Cookie. Attributes are passed over, but for an end: a session has one path."""
    pair, *attributes = header.encode("latin-1", "replace").split(b";")
    name, equals, value = (part.strip() for part in pair.partition(b"="))
    if not (name and equals) or len(pair) > _LONGEST:
        return cookies
    kept = {known: each for known, each in cookies.items() if known != name}
    ended = any(each.strip().lower() in (b"max-age=0", b"max-age=-1") for each in attributes)
    return kept if ended or len(kept) >= _MOST_COOKIES else {**kept, name: value}
