"""What a draft corpus holds, in numbers and in a line."""

from dataclasses import dataclass

from specpair.counted import counted


@dataclass(frozen=True, slots=True)
class CorpusState:
    """What a corpus holds, and how far its indexing is."""

    files: int
    tokens: int
    skipped: dict[str, int]  # files that are left out, by reason
    waiting: int  # files that are still to be indexed, as far as they have been found
    indexing: bool  # whether it is going on
    mapped: int  # bytes of memory maps
    failure: str | None = None  # why the last indexing failed

    @property
    def described(self) -> str:
        """The state in a short line, such as `120 files, 7 skipped, 12 to index`."""
        parts = [counted(self.files, "file")]
        if self.skipped:
            parts.append(f"{sum(self.skipped.values())} skipped")
        if self.indexing and self.waiting:
            parts.append(f"{self.waiting} to index")
        if self.failure is not None:
            parts.append("not up to date: see the log")
        return ", ".join(parts)
