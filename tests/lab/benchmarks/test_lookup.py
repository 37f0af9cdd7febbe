"""The texts of the lookup benchmark, and the target that recites them."""

from contextlib import closing

import numpy as np

from backends.scripted import BEGIN, END, ByteVocabulary
from lab.benchmarks.lookup import Reciting, definitions, frequent_name, renamed
from specpair.engines.backend import Backend, Entry

SOURCE = '''\
@cache
def parsed(value, default=None):
    """What it says."""
    default = value or default
    class_of = {value: default}
    return return_values(class_of)

class Values:
    pass
'''


def test_the_most_frequent_name_is_a_whole_word_and_no_keyword() -> None:
    assert frequent_name(SOURCE) == "default"
    assert frequent_name("return a_b; return a_b; return abc_d") == "abc_d", "of five letters, and no keyword"


def test_only_whole_words_are_renamed() -> None:
    assert renamed("a.b ab a_b ba a", "a", "new_a") == "new_a.b ab a_b ba new_a"
    assert renamed("a.b aXb", "a.b", "c") == "c aXb"


def test_a_summary_has_what_is_defined_and_what_documents_it() -> None:
    assert definitions(SOURCE) == ('@cache\ndef parsed(value, default=None):\n    """What it says."""\nclass Values:\n')


def said(backend: Backend, slot: int, start: int, tokens: list[int]) -> list[int]:
    """The likeliest token behind each of `tokens`."""
    return [int(np.argmax(logits)) for logits in backend.extend([Entry(slot, start, tokens, 0)])[0]]


def test_a_text_that_was_given_is_recited_and_anything_else_ends() -> None:
    one, other = [BEGIN, *b"abcab"], [*b"wxyz"]
    with closing(Reciting([one, other], ByteVocabulary(), slots=3, context_length=32)) as backend:
        assert said(backend, 0, 0, one) == [*one[1:], END]
        assert said(backend, 0, 3, [*b"d!"]) == [END, END], "drafts that do not stand there"
        assert said(backend, 0, 3, one[3:]) == [*one[4:], END], "taken back"
        backend.copy(0, 2, 4)
        assert said(backend, 0, 0, other) == [*other[1:], END]
        assert said(backend, 2, 4, one[4:5]) == [one[5]], "a copy goes on as its source did"
        backend.release(2)
        batch = [Entry(2, 0, one[:2], 1), Entry(1, 0, other[:3], 3)]
        assert [logits.shape for logits in backend.extend(batch)] == [(1, 258), (0, 258)]
        assert said(backend, 1, 3, other[3:]) == [END]
