"""The number that an answer ends in, by which it is compared with the reference answer."""

import re
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_MARKED = (
    re.compile(r"####\s*(-?\$?\d[\d,]*(?:\.\d+)?)"),
    re.compile(r"\\boxed\{\s*(-?\\?\$?\d[\d,]*(?:\.\d+)?)"),
    re.compile(r"answer is:?\s*\**\s*(-?\$?\d[\d,]*(?:\.\d+)?)", re.IGNORECASE),
)
_NEW_QUESTION = "\nQuestion:"  # a base model writes on with a question of its own after the answer


def answer_in(text: str) -> Decimal | None:
    """The number that an answer ends in, such as one to a problem of GSM8K. None: there is no number.

    It stands behind `####`, in `\\boxed{}`, behind "the answer is", or else is the last number, as
    lm-evaluation-harness's strict and flexible matches have it.
    """
    text = text.partition(_NEW_QUESTION)[0]
    for marked in _MARKED:
        if found := marked.findall(text):
            return _decimal(found[0])
    numbers = _NUMBER.findall(text)
    return _decimal(numbers[-1]) if numbers else None


def _decimal(number: str) -> Decimal | None:
    try:
        return Decimal(number.translate({ord(each): None for each in "$,\\"}))
    except InvalidOperation:
        return None
