"""Who is told what the engine does, and what can be asked of it at any time: for metrics."""

from dataclasses import dataclass

from verifier_server.sessions import Session


class EngineObserver:
    """Is told what the engine does. This one ignores it.

    The engine's thread makes the calls and waits for them, so they have to be fast. Times are in seconds.
    """

    def waited(self, seconds: float) -> None:
        """A request had its first pass so long after it was queued."""

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        """A pass over `tokens` tokens of `sessions` sessions ended.

        `prefilled`: how many tokens were fed without being judged, as those of a prompt.
        """

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        """A pass committed `tokens` tokens, and judged `judged` draft tokens.

        `since`: the time since the tokens before; if it was the `first` pass of the session that committed any, since
        its first request was queued.
        """

    def target_decoded(self, tokens: int) -> None:
        """A self-continuation step committed `tokens` tokens; `committed` is called, too."""

    def ended(self, session: Session, seconds: float) -> None:
        """The text of `session` has ended, so long after its first request was queued."""


class EngineObservers(EngineObserver):
    """Tells several observers, in order."""

    def __init__(self, *observers: EngineObserver) -> None:
        self._observers = observers

    def waited(self, seconds: float) -> None:
        for each in self._observers:
            each.waited(seconds)

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        for each in self._observers:
            each.passed(sessions, tokens, prefilled, seconds)

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        for each in self._observers:
            each.committed(session, tokens, judged, accepted, since, first)

    def target_decoded(self, tokens: int) -> None:
        for each in self._observers:
            each.target_decoded(tokens)

    def ended(self, session: Session, seconds: float) -> None:
        for each in self._observers:
            each.ended(session, seconds)


@dataclass(frozen=True, slots=True)
class EngineState:
    """What an engine holds at a moment."""

    waiting: int  # requests that wait for a pass
    running: int  # requests that the pass under way may answer
    full: bool  # whether no more requests may wait
    slots: int
    slots_in_use: int
    cached_tokens: int  # in all slots
    kept_tokens: int  # of these, those of texts that have ended
    context_length: int  # tokens that a slot can hold
    evictions: int  # how often a session whose text had not ended has lost its slot to another one
