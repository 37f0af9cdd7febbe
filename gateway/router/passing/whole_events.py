"""The events of a stream that are whole: what comes behind a part of one would be read as more of it. Pure."""

_END = b"\n\n"
_NAME = b"event: "


class WholeEvents:
    """Cuts the bytes of a stream behind its events."""

    def __init__(self) -> None:
        self._held = bytearray()  # of an event that is not whole yet
        self.named = 0  # events with a name that were returned

    def take(self, piece: bytes, last: bool = False) -> bytes:
        """The bytes that may be sent now, of this piece and those before. `last`: no more come, so these are all."""
        held, before = self._held, len(self._held)
        held += piece
        found = held.rfind(_END, max(0, before - 1))
        if found < 0 and not last:
            return b""
        end = len(held) if last else found + len(_END)
        whole = bytes(held[:end])
        del held[:end]
        self.named += whole.startswith(_NAME) + whole.count(b"\n" + _NAME)
        return whole
