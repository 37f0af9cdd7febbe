"""Stop strings: nothing after the first one comes out, however the text is divided."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.detokenizer import StopStrings

TEXTS = st.text(alphabet="abé", max_size=30)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)


def _fed(text: str, stops: list[str], cuts: list[int]) -> tuple[str, bool]:
    stopper, out, bounds = StopStrings(stops), "", [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        out += stopper.feed(text[begin:end])
        if stopper.found is not None:
            return out, True
    return out + stopper.end(), False


def _cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the stop string that is complete first, and of these the one that began first."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(TEXTS, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_the_text_ends_before_the_first_stop_string_for_every_division(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    assert _fed(text, stops, cuts) == _cut(text, stops)


@given(TEXTS, STOPS)
def test_what_cannot_begin_a_stop_string_is_not_held_back(text: str, stops: list[str]) -> None:
    if _cut(text, stops)[1]:
        return
    stopper = StopStrings(stops)
    held = text[len(stopper.feed(text)) :]
    assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)
