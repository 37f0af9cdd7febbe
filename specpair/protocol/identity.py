"""The identity of a verifier: a short value that changes when another model, or another service of it, answers.

Every reply that begins a text bears it, so a drafter notices the change without a request. It has two parts. The first
stands for what defines a text: model, vocabulary, logit processors, noise. If only the second differs, such as with a
smaller context, a text can go on.
"""

import hashlib
import json

from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.sampling import row_changes

_OF_THE_TEXT = {"name", "noise", "vocabulary"}
# Other values at each start of one verifier.
_MEASURED = {"pass_ms", "wide_pass_ms", "draft_pass_ms", "kv_bytes", "identity"}
_OF_THE_PLACE = {"machine"}  # other values at each replica of one service


def identity_of(info: ModelInfo, model: str) -> str:
    """The identity of a verifier.

    `info`: what it serves, over its whole vocabulary.
    `model`: the target's own name, which `info` may give another name.
    """
    told = json.loads(info.model_dump_json(by_alias=False))
    text = [model, row_changes.NAME, *(told[name] for name in sorted(_OF_THE_TEXT))]
    service = [told[name] for name in sorted(set(told) - _OF_THE_TEXT - _MEASURED - _OF_THE_PLACE)]
    return f"{_hash(text, 16)}-{_hash(service, 8)}"


def continues(identity: str, other: str) -> bool:
    """Whether a text that was begun under one identity can go on under the other."""
    return identity.partition("-")[0] == other.partition("-")[0]


def _hash(value: object, digits: int) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:digits]
