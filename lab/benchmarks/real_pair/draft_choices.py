"""What a real draft model would choose behind a recorded text.

The draft model reads each text once, with the noise of the text. Behind tokens that the target did not write it is not
asked: nothing that it chooses there can be accepted. Its choices there are made up, and as likely as those at that
place of the text.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from lab.benchmarks.real_pair.record import RecordedText
from specpair.engines.backend import Backend, Entry, Logits
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling.sampling import Sampling, choose_several, probabilities

KEPT = 6  # choices that are known at each place, the best first
_PASS = 64  # tokens
_NO_IDS, _MADE_UP = 1 << 20, 4096  # ids beyond any vocabulary, and how many of them are made up


class Choices(NamedTuple):
    """The ids that score best under the noise of the text, the best first, and their probabilities."""

    ids: list[int]
    probabilities: list[float]


class TextChoices:
    """The choices about one text."""

    def __init__(self, text: RecordedText, choices: Sequence[Choices]) -> None:
        """`choices`: for each token of the text, what the draft model chooses behind all tokens before it."""
        self._prompt, self._whole, self._choices = len(text.prompt), [*text.prompt, *text.tokens], choices

    @property
    def agrees(self) -> list[bool]:
        """For each of the target's tokens, whether the draft model, knowing all before it, chooses it, too."""
        tokens = self._whole[self._prompt :]
        return [each.ids[0] == token for each, token in zip(self._choices, tokens, strict=True)]

    def after(self, length: int, tail: Sequence[int]) -> Choices:
        """The choices behind the first `length` tokens of the recorded text, the prompt's included, and `tail`."""
        right = common_prefix(self._whole[length:], tail)
        length, tail = length + right, tail[right:]
        place = min(max(length + len(tail), self._prompt), len(self._whole) - 1)
        known = self._choices[place - self._prompt]
        if not tail and length < len(self._whole):
            return known
        first = zlib.crc32(repr((length, *tail)).encode()) % _MADE_UP
        return Choices([_NO_IDS + (first + rank) % _MADE_UP for rank in range(KEPT)], known.probabilities)


def choices_of(draft: Backend, text: RecordedText) -> TextChoices:
    """What the draft model chooses behind each part of the text. It reads the text in slot 0."""
    whole, prompt, found = [*text.prompt, *text.tokens], len(text.prompt), list[Choices]()
    draft.release(0)
    for at in range(0, len(whole) - 1, _PASS):
        part = whole[at : min(at + _PASS, len(whole) - 1)]
        skipped = min(max(prompt - 1 - at, 0), len(part))
        rows = draft.extend([Entry(0, at, part, skipped)])[0]
        found += [best(row, text.sampling, position) for position, row in enumerate(rows, at + skipped + 1)]
    return TextChoices(text, found)


def best(row: Logits, sampling: Sampling, position: int) -> Choices:
    """The choices at `position`."""
    ids = choose_several(row, sampling, position, KEPT)
    return Choices(list(map(int, ids)), [round(each, 5) for each in probabilities(row, ids, sampling)])
