"""The fingerprint of a vocabulary. Does not import pydantic: a machine that only runs a backend may lack it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Sent in place of a vocabulary: SHA-256 hashes over (id, bytes) per class of token, for the ids below `below`."""

    size: int = field(metadata={"ge": 1, "le": 2**53, "description": "Ids in the whole vocabulary."})
    below: int = field(metadata={"ge": 0, "description": "The hashes cover the ids below this."})
    begin: int | None = field(metadata={"ge": 0, "description": "The id of the begin token."})
    ends: tuple[int, ...] = field(
        metadata={"fail_fast": True, "strict": False, "description": "The ids of all end tokens."}
    )
    ordinary: str = field(metadata={"description": "Hash over id and bytes of the ordinary (text) tokens."})
    control: str = field(metadata={"description": "Hash over id and bytes of the control tokens."})
    text: str = field(
        metadata={
            "description": "Hash over all that defines texts: all tokens except unused ones, and the token ids of "
            "probe texts."
        }
    )
