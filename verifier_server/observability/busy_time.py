"""How long the engine has run forward passes, for its health."""

from verifier_server.engine.observer import EngineObserver


class BusyTime(EngineObserver):
    """Adds up the time of passes. `seconds` may be read in any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def passed(self, sessions: int, tokens: int, prefilled: int, seconds: float) -> None:
        self.seconds += seconds
