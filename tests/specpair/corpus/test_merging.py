"""A merged segment is what sorting the files that are kept together would make."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specpair.corpus.merging import Merged, merged
from specpair.corpus.suffix_array import LONGEST, NO_TOKEN, as_bytes, joined, sorted_places

TEXT = st.lists(st.integers(0, 2), max_size=12) | st.builds(lambda token: [token] * 50, st.integers(0, 1))
SEGMENTS = st.lists(st.lists(st.tuples(TEXT, st.booleans()), max_size=4), min_size=1, max_size=4)


@given(SEGMENTS, st.integers(1, 40))
def test_places_are_sorted_and_files_that_are_gone_are_left_out(
    segments: list[list[tuple[list[int], bool]]], at_once: int
) -> None:
    parts, at = list[Merged](), 0
    for files in segments:
        backwards = joined([np.asarray(text, np.uint32) for text, _ in files])
        lengths, kept = [len(text) for text, _ in files[::-1]], [stays for _, stays in files[::-1]]
        parts.append(Merged(memoryview(as_bytes(backwards)), sorted_places(backwards), lengths, kept, at))
        at += parts[-1].count
    wanted = joined([np.asarray(text, np.uint32) for files in segments[::-1] for text, stays in files if stays])
    assert b"".join(data for part in parts for data in part.data()) + bytes(4 * LONGEST) == as_bytes(wanted)
    places, tokens = np.concatenate([*merged(parts, at_once)]).tolist(), wanted.tolist()
    assert sorted(places) == [*range(at)] == [*range(len(tokens))]
    begins = [tokens[place : place + LONGEST] for place in places]
    compared = [begin[: begin.index(NO_TOKEN) + 1] if NO_TOKEN in begin else begin for begin in begins]
    assert compared == sorted(compared)
