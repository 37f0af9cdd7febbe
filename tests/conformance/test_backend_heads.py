"""The head of every engine that runs one drafts by what a slot holds, however that got there, and changes no text."""

from collections.abc import Sequence

import numpy as np
import pytest

from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import BadEntry
from specpair.speculation.acceptance.strategies import common_prefix
from tests.conformance.conftest import Subject

HELD = 20  # tokens in a slot before drafts


@pytest.fixture
def subject(subject: Subject) -> Subject:
    assert bool(subject.backend.head_depth) is subject.candidate.has_head
    if not subject.backend.head_depth:
        pytest.skip("this engine's model has no head")
    return subject


def drafted(subject: Subject, slot: int, start: int, tail: Sequence[int]) -> Logits:
    """The head's logits behind each token of `tail`, which is asked about token by token."""
    ends = range(1, len(tail) + 1)
    return np.concatenate([subject.backend.extend_head([HeadEntry(slot, start, tail[:end])]) for end in ends])


def fresh_drafts(subject: Subject, text: Sequence[int], tail: Sequence[int]) -> Logits:
    """These logits behind `text`, read in an empty slot, which is emptied again afterwards."""
    slot, batch = subject.backend.slots - 1, subject.backend.max_batch_tokens
    subject.backend.release(slot)
    for start in range(0, len(text), batch):
        subject.feed(slot, start, text[start : start + batch])
    rows = drafted(subject, slot, len(text), tail)
    subject.backend.release(slot)
    return rows


def tail_of(subject: Subject, at: int) -> list[int]:
    """As many tokens as the head drafts behind at most."""
    return subject.ids[at : at + subject.backend.head_depth]


def test_rows_of_the_head_have_the_contract_s_shape_and_dtype(subject: Subject) -> None:
    subject.feed(0, 0, subject.ids[:HELD])
    rows = subject.backend.extend_head([HeadEntry(0, HELD, tail_of(subject, HELD))])
    assert rows.shape == (1, subject.backend.vocabulary.size)
    assert rows.dtype == np.float32
    assert np.isfinite(rows.max())


def test_a_tail_at_once_equals_one_that_grows_and_branches(subject: Subject) -> None:
    subject.feed(0, 0, subject.ids[:HELD])
    tail, other = tail_of(subject, HELD), tail_of(subject, 50)
    rows, text = drafted(subject, 0, HELD, tail), subject.ids[:HELD]
    assert subject.same(rows[-1:], subject.backend.extend_head([HeadEntry(0, HELD, tail)]))
    assert subject.same(rows, fresh_drafts(subject, text, tail))
    for kept in range(len(tail)):
        branch = [*tail[:kept], *other[kept:]]
        got = subject.backend.extend_head([HeadEntry(0, HELD, branch)])
        assert subject.same(got, fresh_drafts(subject, text, branch)[-1:])


def test_a_question_behind_fewer_tokens_equals_that_of_a_fresh_slot(subject: Subject) -> None:
    tail = tail_of(subject, 70)
    subject.feed(0, 0, subject.ids[:HELD])
    drafted(subject, 0, HELD, tail)
    for start in (HELD - 4, 3, 0):
        assert subject.same(drafted(subject, 0, start, tail), fresh_drafts(subject, subject.ids[:start], tail))


@pytest.mark.parametrize("length", [1, 2, 33, 130, 300])
def test_drafts_do_not_depend_on_the_widths_of_passes(subject: Subject, length: int) -> None:
    text, tail = subject.full[:length], tail_of(subject, 5)
    for start in range(0, length, 7):
        subject.feed(0, start, text[start : min(length, start + 7)])
        if start % 3 == 0:
            drafted(subject, 0, min(length, start + 7), tail_of(subject, 40)[:1])
    assert subject.same(drafted(subject, 0, length, tail), fresh_drafts(subject, text, tail))


@pytest.mark.parametrize("kept", [1, 13, HELD - 1, HELD])
def test_drafts_after_a_rollback_equal_those_of_a_fresh_slot(subject: Subject, kept: int) -> None:
    ids, tail = subject.ids, tail_of(subject, 70)
    subject.feed(0, 0, ids[:HELD])
    drafted(subject, 0, HELD, tail_of(subject, 40))
    subject.feed(0, kept, ids[60:65])
    text = [*ids[:kept], *ids[60:65]]
    assert subject.same(drafted(subject, 0, len(text), tail), fresh_drafts(subject, text, tail))


def test_drafts_after_rejected_drafts_equal_those_of_a_fresh_slot(subject: Subject) -> None:
    """The target judges what the head drafted, keeps some of it, and goes on with another token."""
    text = list(subject.ids[:HELD])
    subject.feed(0, 0, text[:-1])
    for judged in range(5):
        tail = [text[-1], *tail_of(subject, 30 + judged)][: subject.backend.head_depth]
        drafted(subject, 0, len(text) - 1, tail)
        subject.feed(0, len(text) - 1, tail)
        text += [*tail[1 : judged + 1], subject.ids[90 + judged]]
    expected = fresh_drafts(subject, text[:-1], text[-1:])
    assert subject.same(drafted(subject, 0, len(text) - 1, text[-1:]), expected)


def test_drafts_in_a_copied_slot_equal_those_of_a_fresh_one(subject: Subject) -> None:
    ids, tail, backend = subject.ids, tail_of(subject, 70), subject.backend
    if not backend.can_copy:
        pytest.skip("this engine cannot copy")
    for asked in (False, True):
        subject.feed(1, 0, ids[80:110])  # is overwritten
        drafted(subject, 1, 30, tail)
        subject.feed(0, 0, ids[:HELD])
        if asked:
            drafted(subject, 0, HELD, tail_of(subject, 40))
        backend.copy(0, 1, 15)
        subject.feed(1, 15, ids[60:62])
        text = [*ids[:15], *ids[60:62]]
        assert subject.same(drafted(subject, 1, len(text), tail), fresh_drafts(subject, text, tail))
        assert subject.same(drafted(subject, 0, HELD, tail), fresh_drafts(subject, ids[:HELD], tail))
        backend.release(0)
        assert subject.same(drafted(subject, 1, len(text), tail), fresh_drafts(subject, text, tail))


def test_drafts_in_a_released_slot_equal_those_of_a_fresh_one(subject: Subject) -> None:
    text, tail = subject.ids[60:72], tail_of(subject, 70)
    subject.feed(0, 0, subject.ids[:HELD])
    drafted(subject, 0, HELD, tail)
    subject.backend.release(0)
    drafted(subject, 0, 0, tail)
    subject.backend.release(0)
    first = drafted(subject, 0, 0, tail)
    subject.feed(0, 0, text)
    assert subject.same(drafted(subject, 0, len(text), tail), fresh_drafts(subject, text, tail))
    assert subject.same(first, fresh_drafts(subject, [], tail)), "behind nothing"


def test_drafts_behind_a_kept_path_equal_those_of_a_fresh_slot(subject: Subject) -> None:
    backend, ids, tail = subject.backend, subject.ids, tail_of(subject, 70)
    if not backend.takes_trees:
        pytest.skip("this engine takes no trees")
    for path in ([], [1], [2, 4], [1, 3]):
        subject.feed(0, 0, ids[:HELD])
        drafted(subject, 0, HELD, tail)
        tokens = [ids[HELD - 1], *ids[50:54]]
        backend.extend([Entry(0, HELD - 1, tokens, 0, [1, 2, 2, 2])])
        drafted(subject, 0, HELD, tail)
        backend.keep(0, path)
        text = [*ids[:HELD], *(tokens[each] for each in path)]
        assert subject.same(drafted(subject, 0, len(text), tail), fresh_drafts(subject, text, tail))


def test_drafts_for_several_slots_at_once_equal_those_one_by_one(subject: Subject) -> None:
    """At different positions, with tails of different lengths, some of whose tokens were read before."""
    ids, tail = subject.ids, tail_of(subject, 70)
    texts = [ids[:5], subject.full[:150], ids[30:50]]
    tails = [tail[:1], tail, tail[: (len(tail) + 1) // 2]]
    expected = [fresh_drafts(subject, *each)[-1:] for each in zip(texts, tails, strict=True)]
    for slot, text in enumerate(texts):
        for start in range(0, len(text), subject.backend.max_batch_tokens):
            subject.feed(slot, start, text[start : start + subject.backend.max_batch_tokens])
    drafted(subject, 2, 20, tails[2][:1])
    entries = [HeadEntry(slot, len(texts[slot]), tails[slot]) for slot in (2, 0, 1)]
    rows = subject.backend.extend_head(entries)
    assert subject.same(rows, np.concatenate([expected[entry.slot] for entry in entries]))


def test_texts_with_drafts_of_the_head_are_those_of_plain_decoding(subject: Subject) -> None:
    """Two texts in turn at temperature 0, but for ties within the tolerance."""
    backend, begin = subject.backend, (subject.ids[:HELD], subject.ids[30:45])
    texts = [list(text) for text in begin]
    for slot, text in enumerate(texts):
        subject.feed(slot, 0, text[:-1])
    for _ in range(6):
        tails = [text[-1:] for text in texts]
        for _ in range(min(3, backend.head_depth)):
            entries = [HeadEntry(slot, len(texts[slot]) - 1, tail) for slot, tail in enumerate(tails)]
            for tail, row in zip(tails, backend.extend_head(entries), strict=True):
                tail.append(int(row.argmax()))
        judged = backend.extend([Entry(slot, len(texts[slot]) - 1, tail, 0) for slot, tail in enumerate(tails)])
        for text, tail, rows in zip(texts, tails, judged, strict=True):
            picked = rows.argmax(axis=-1).tolist()
            text += picked[: 1 + common_prefix(picked, tail[1:])]
    for text, prompt in zip(texts, begin, strict=True):
        rows, written = subject.fresh(text[:-1])[len(prompt) - 1 :], text[len(prompt) :]
        assert len(written) >= 6
        assert (rows[np.arange(len(written)), written] >= rows.max(axis=-1) - 2 * subject.tolerance).all()


def test_drafts_of_the_head_leave_the_target_s_logits_unchanged(subject: Subject) -> None:
    ids = subject.ids[:40]
    parts = []
    for start in range(0, len(ids), 5):
        parts.append(subject.feed(0, start, ids[start : start + 5]))
        drafted(subject, 0, start + 5, tail_of(subject, 60))
    assert subject.same(np.concatenate(parts), subject.fresh(ids))
    assert subject.backend.length(0) == len(ids)


def test_bad_questions_are_refused_and_change_nothing(subject: Subject) -> None:
    backend, ids, depth = subject.backend, subject.ids, subject.backend.head_depth
    subject.feed(0, 0, ids[:HELD])
    good, size = HeadEntry(0, HELD, ids[HELD : HELD + 1]), backend.vocabulary.size
    refusals = [
        ([good, HeadEntry(3, 0, ids[:1])], "slot 3 does not exist"),
        ([good, HeadEntry(1, 1, ids[:1])], "slot 1: the head cannot draft at 1 of 0 tokens"),
        ([HeadEntry(0, -1, ids[:1])], "slot 0: the head cannot draft at -1 of 20 tokens"),
        ([HeadEntry(0, HELD, [])], f"slot 0: the head drafts behind 1 to {depth} tokens, not 0"),
        ([HeadEntry(0, HELD, ids[: depth + 1])], f"drafts behind 1 to {depth} tokens, not {depth + 1}"),
        ([HeadEntry(0, HELD, [size])], f"slot 0: a token id is outside of the vocabulary of {size}"),
        ([HeadEntry(0, HELD, [-1])], f"slot 0: a token id is outside of the vocabulary of {size}"),
        ([good, good], "two tails of the head are of the same slot"),
    ]
    for batch, words in refusals:
        with pytest.raises(BadEntry, match=words):
            backend.extend_head(batch)
    assert subject.same(backend.extend_head([good]), fresh_drafts(subject, ids[:HELD], good.tail))
    assert subject.same(subject.feed(0, HELD, ids[HELD:22]), subject.fresh(ids[:22])[HELD:])
