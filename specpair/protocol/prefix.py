"""A prompt that begins like an earlier text: the request names that text and has only the ids that follow."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field


class PromptPrefix(BaseModel):
    """The first ids of a text that the verifier still holds, by which a prompt begins."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    session_id: Annotated[str, Field(max_length=128, description="The session of that text, which may have ended.")]
    length: Annotated[int, Field(ge=1, description="How many of its first ids the prompt begins with.")]
    hash: Annotated[
        str,
        Field(
            pattern="^[0-9a-f]{16}$",
            description="The first 16 hexadecimal digits of the SHA-256 of these ids, each in 4 bytes, little-endian.",
        ),
    ]

    @classmethod
    def of(cls, session_id: str, ids: Sequence[int]) -> Self:
        """The prefix that is `ids`, the first ids of a session's text."""
        return cls(session_id=session_id, length=len(ids), hash=hash_of(ids))


def hash_of(ids: Sequence[int]) -> str:
    """The hash of token ids by which both ends know them to be the same."""
    return hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()[:16]
