"""Every engine fulfils the contract of `specpair.engines.backend` for its slots."""

from collections.abc import Sequence

import numpy as np
import pytest

from backends.registry import NAMES, SHOWN
from specpair.engines.backend import Entry
from specpair.engines.errors import BadEntry
from specpair.engines.vocabulary import Kind, difference
from tests.conformance.backends import KINDS, TorchOn, candidates
from tests.conformance.conftest import TEXT, Subject
from tests.paths import ROOT


def test_logits_have_the_contract_s_shape_and_dtype(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    logits = subject.feed(0, 0, subject.ids[:5], logits_from=2)
    assert logits.shape == (3, vocabulary.size)
    assert logits.dtype == np.float32
    assert not np.isnan(logits).any()
    assert np.isfinite(logits.max(axis=1)).all()


def test_logits_from_skips_the_first_tokens(subject: Subject) -> None:
    ids = subject.ids[:12]
    whole = subject.fresh(ids)
    for logits_from in (1, 7, 11):
        subject.backend.release(0)
        assert subject.same(subject.feed(0, 0, ids, logits_from), whole[logits_from:])
    assert subject.feed(0, 0, ids, 12).shape == (0, subject.backend.vocabulary.size)
    assert subject.same(subject.feed(0, 12, subject.ids[12:13]), subject.fresh(subject.ids[:13])[12:])


@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_feeding_in_chunks_equals_one_pass(subject: Subject, width: int) -> None:
    ids = subject.ids[:60]
    parts = [subject.feed(0, start, ids[start : start + width]) for start in range(0, len(ids), width)]
    assert subject.same(np.concatenate(parts), subject.fresh(ids))
    assert subject.backend.length(0) == len(ids)


@pytest.mark.parametrize("length", [20, 130, 300, 370])
def test_logits_after_a_long_text_do_not_depend_on_the_width(subject: Subject, length: int) -> None:
    ids, batch = subject.full, subject.backend.max_batch_tokens
    for start in range(0, length, batch):
        subject.feed(0, start, ids[start : min(length, start + batch)])
    wide = subject.feed(0, length, ids[length : length + 8])
    for width in (1, 2, 5):
        assert subject.same(subject.feed(0, length, ids[length : length + width]), wide[:width])


def test_batch_over_slots_equals_one_slot_after_the_other(subject: Subject) -> None:
    ids = subject.ids
    texts = [ids[:1], ids[5:25], ids[30:37]]
    batch = [Entry(slot, 0, text, 0) for slot, text in enumerate(texts)]
    together = [logits.copy() for logits in subject.backend.extend(batch)]
    assert all(subject.same(logits, subject.fresh(text)) for logits, text in zip(together, texts, strict=True))


def test_entries_of_one_batch_are_independent(subject: Subject) -> None:
    """Slots in any order, at different positions, one without logits, one with a rollback."""
    ids, other = subject.ids[:20], subject.ids[40:60]
    subject.feed(0, 0, ids[:10])
    subject.feed(2, 0, [*other[:8], *ids[:4]])
    got = subject.backend.extend([Entry(2, 8, other[8:14], 1), Entry(1, 0, ids[:6], 6), Entry(0, 10, ids[10:11], 0)])
    mixed, none, single = [logits.copy() for logits in got]
    assert none.shape == (0, subject.backend.vocabulary.size)
    assert subject.same(single, subject.fresh(ids[:11])[10:])
    subject.feed(2, 0, other[:9])
    assert subject.same(mixed, subject.fresh(other[:14])[9:])
    assert [subject.backend.length(slot) for slot in (0, 1)] == [11, 6]


@pytest.mark.parametrize("kept", [14, 12, 8])
def test_smaller_start_rolls_back(subject: Subject, kept: int) -> None:
    """Rejected draft tokens do not change later logits."""
    ids, drafts = subject.ids[:30], subject.ids[60:80]
    subject.feed(0, 0, ids[:kept])
    subject.feed(0, kept, drafts[: 16 - kept])
    assert subject.same(subject.feed(0, kept, ids[kept:]), subject.fresh(ids)[kept:])
    assert subject.backend.length(0) == 30


def test_rounds_of_rejected_drafts_leave_the_logits_unchanged(subject: Subject) -> None:
    ids, wrong = subject.ids[:40], subject.ids[70:90]
    whole = subject.fresh(ids)
    committed = 1
    for round_number in range(100):
        right = round_number % 4
        drafts = [*ids[committed : committed + right], *wrong[round_number % 10 :][:3]]
        got = subject.feed(0, committed - 1, [ids[committed - 1], *drafts])
        valid = min(right + 1, len(ids) - committed + 1)
        assert subject.same(got[:valid], whole[committed - 1 : committed - 1 + valid])
        committed = min(committed + right, len(ids))
        if committed == len(ids):
            return
    raise AssertionError("the rounds never reached the end")


def test_copied_prefix_is_independent(subject: Subject) -> None:
    if not subject.backend.can_copy:
        pytest.skip("this engine cannot copy")
    ids, other = subject.ids[:20], subject.ids[60:70]
    subject.feed(1, 0, subject.ids[80:110])  # is overwritten
    subject.feed(0, 0, ids[:14])
    subject.backend.copy(0, 1, 10)
    assert [subject.backend.length(slot) for slot in (0, 1)] == [14, 10]
    diverged = subject.feed(1, 10, other)
    assert subject.same(diverged, subject.fresh([*ids[:10], *other])[10:])
    assert subject.same(subject.feed(0, 14, ids[14:]), subject.fresh(ids)[14:])
    subject.backend.release(0)
    assert subject.same(subject.feed(1, 20, ids[:2]), subject.fresh([*ids[:10], *other, *ids[:2]])[20:])


MOVED = 0.2  # how much a logit may differ where keys were moved to other positions and back


def test_a_piece_is_moved_into_a_slot_and_out_again(subject: Subject) -> None:
    backend, ids = subject.backend, subject.ids
    if not backend.can_splice:
        with pytest.raises(BadEntry, match="cannot move tokens"):
            backend.splice(0, 0, 0)
        pytest.skip("this engine cannot move tokens within a slot")
    # No position beyond the attention window of the models that have one: what falls out of it may be overwritten.
    sink, piece, window, more = ids[:4], ids[20:28], ids[50:58], ids[62:66]

    def moved_in() -> None:
        backend.release(0)
        subject.feed(0, 0, [*sink, *window])
        backend.copy(0, 1, 4)
        subject.feed(1, 4, piece)
        backend.splice(0, 4, 4, 1, 4)

    moved_in()
    assert [backend.length(slot) for slot in (0, 1)] == [20, 0]
    subject.feed(0, 20, more)  # reads behind what was moved
    backend.splice(0, 12, 24)  # the window and what followed it
    assert backend.length(0) == 12
    assert subject.same(subject.feed(0, 12, more), subject.fresh([*sink, *piece, *more])[12:])

    moved_in()
    backend.splice(0, 4, 12)  # the piece: the window is back at its place
    moved, never = subject.feed(0, 12, more), subject.fresh([*sink, *window, *more])[12:]
    assert np.abs(np.nan_to_num(moved, neginf=0.0) - np.nan_to_num(never, neginf=0.0)).max() <= MOVED
    assert subject.differ(moved[:1], subject.fresh([*sink, *piece, *more])[12:13])


def test_bad_splices_are_refused_and_change_nothing(subject: Subject) -> None:
    backend, ids = subject.backend, subject.ids
    if not backend.can_splice:
        pytest.skip("this engine cannot move tokens within a slot")
    subject.feed(0, 0, ids[:9])
    subject.feed(1, 0, ids[:5])
    cases = (-1, 0, None, 0), (3, 2, None, 0), (3, 10, None, 0), (3, 3, 0, 0), (3, 3, 1, 6), (3, 3, 9, 0)
    for start, end, source, first in cases:
        with pytest.raises(BadEntry):
            backend.splice(0, start, end, source, first)
    assert [backend.length(slot) for slot in (0, 1)] == [9, 5]
    assert subject.same(subject.feed(0, 9, ids[9:12]), subject.fresh(ids[:12])[9:])


def test_released_slot_is_empty(subject: Subject) -> None:
    subject.feed(0, 0, subject.ids[:9])
    subject.backend.release(0)
    assert subject.backend.length(0) == 0
    with pytest.raises(BadEntry, match="leaves a gap"):
        subject.feed(0, 9, subject.ids[9:10])
    assert subject.same(subject.feed(0, 0, subject.ids[20:25]), subject.fresh(subject.ids[20:25]))
    subject.backend.release(1)  # an empty slot


def test_logits_stay_valid_after_release_and_copy(subject: Subject) -> None:
    """Logits are valid until the next pass, so that the sessions of a batch can be handled one after the other."""
    logits = subject.backend.extend([Entry(0, 0, subject.ids[:4], 0), Entry(1, 0, subject.ids[9:12], 0)])
    kept = [each.copy() for each in logits]
    subject.backend.release(0)
    if subject.backend.can_copy:
        subject.backend.copy(1, 0, 2)
    assert all(np.array_equal(now, before) for now, before in zip(logits, kept, strict=True))


def test_context_can_be_filled_completely(subject: Subject) -> None:
    context, batch = subject.backend.context_length, subject.backend.max_batch_tokens
    ids = subject.full
    for slot in range(subject.backend.slots):
        for start in range(0, context, batch):
            last = subject.feed(slot, start, ids[start : start + batch])[-1:]
        assert subject.backend.length(slot) == context
    with pytest.raises(BadEntry, match=f"{context + 1} tokens exceed the context of {context}"):
        subject.feed(0, context, ids[:1])
    again = subject.feed(0, context - 1, ids[-1:])
    assert subject.same(again, last), "full slots still work after the refusal"


def _refusals(subject: Subject) -> list[tuple[str, Sequence[Entry], str]]:
    backend, ids = subject.backend, subject.ids
    size, slots = backend.vocabulary.size, backend.slots
    good = Entry(1, 0, ids[:2], 0)
    many = (ids * 2)[: backend.max_batch_tokens // 2 + 1]
    return [
        ("an empty batch", [], "the batch is empty"),
        ("a negative slot", [good, Entry(-1, 0, ids[:1], 0)], "slot -1 does not exist"),
        ("a slot too many", [good, Entry(slots, 0, ids[:1], 0)], f"slot {slots} does not exist"),
        ("a slot twice", [good, Entry(1, 2, ids[:1], 0)], "slot 1 occurs twice"),
        ("no tokens", [good, Entry(0, 5, [], 0)], "slot 0: no tokens"),
        ("a gap", [good, Entry(0, 6, ids[:1], 0)], "slot 0: start 6 leaves a gap, the slot holds 5 tokens"),
        ("a negative start", [good, Entry(0, -1, ids[:1], 0)], "slot 0: start -1"),
        ("an id too large", [good, Entry(0, 5, [0, size], 0)], f"outside of the vocabulary of {size}"),
        ("a negative id", [good, Entry(0, 5, [-1], 0)], f"outside of the vocabulary of {size}"),
        ("logits from before", [good, Entry(0, 5, ids[:2], -1)], "slot 0: logits_from -1"),
        ("logits from behind", [good, Entry(0, 5, ids[:2], 3)], "slot 0: logits_from 3"),
        ("a batch too wide", [Entry(0, 5, many, 0), Entry(1, 0, many, 0)], f"{2 * len(many)} tokens exceed the batch"),
    ]


def test_bad_batches_are_refused_and_change_nothing(subject: Subject) -> None:
    ids = subject.ids[:12]
    whole = subject.fresh(ids)
    subject.feed(0, 0, ids[:5])
    for name, batch, words in _refusals(subject):
        with pytest.raises(BadEntry, match=words):
            subject.backend.extend(batch)
        assert [subject.backend.length(slot) for slot in range(3)] == [5, 0, 0], name
    assert subject.same(subject.feed(0, 5, ids[5:]), whole[5:])


def test_bad_copies_are_refused_and_change_nothing(subject: Subject) -> None:
    backend, ids = subject.backend, subject.ids
    subject.feed(0, 0, ids[:5])
    subject.feed(1, 0, ids[5:8])
    for source, destination, length in ((0, 1, 6), (0, 1, -1), (0, 0, 3), (3, 1, 1), (0, -1, 1)):
        with pytest.raises(BadEntry):
            backend.copy(source, destination, length)
    if not backend.can_copy:
        with pytest.raises(BadEntry, match="cannot copy slots"):
            backend.copy(0, 1, 5)
    assert [backend.length(slot) for slot in range(3)] == [5, 3, 0]
    assert subject.same(subject.feed(1, 3, ids[8:10]), subject.fresh(ids[5:10])[3:])


def test_rollback_beyond_the_engine_s_limit_is_refused(subject: Subject) -> None:
    limit = subject.backend.max_rollback
    if limit is None:
        pytest.skip("this engine rolls back any number of tokens")
    ids = subject.ids[:30]
    subject.feed(0, 0, ids)
    with pytest.raises(BadEntry, match=f"rolls back more than {limit} of 30 tokens"):
        subject.feed(0, 30 - limit - 1, ids[:1])
    assert subject.same(subject.feed(0, 30 - limit, ids[30 - limit :]), subject.fresh(ids)[30 - limit :])


@pytest.mark.parametrize("slot", [-1, 3])
def test_unknown_slots_are_refused(subject: Subject, slot: int) -> None:
    for call in (subject.backend.length, subject.backend.release):
        with pytest.raises(BadEntry, match=f"slot {slot} does not exist: this backend has slots 0 to 2"):
            call(slot)


def test_every_engine_is_a_candidate() -> None:
    assert {each.runs_on for each in candidates(TorchOn())} == set(NAMES)


def test_the_page_says_which_kinds_of_model_run_here_on_which_engine() -> None:
    """In the table of docs/engines.md#architectures, `suite` stands where one runs, and nowhere else."""
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    head = ["engine", *KINDS]
    table = rows[rows.index(head) + 2 :][: len(SHOWN)]
    assert [row[0] for row in table] == list(SHOWN)
    said = {(row[0], kind) for row in table for kind, cell in zip(KINDS, row[1:], strict=True) if cell == "suite"}
    assert said == {(each.runs_on, each.kind) for each in candidates(TorchOn()) if each.runs_on in SHOWN}


TEXTS = [
    TEXT,
    "x",
    " ",
    "\n\t\r\n",
    "naïve café, “quotes”",
    "日本語のテキスト",
    "🙂👩‍👩‍👧‍👦 and a flag 🇨🇭",
    "zero \x00 byte",
    "e\u0301 is not é",
    "<|begin|> <begin> <s> </s> <end> <|end|>",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_text_survives_encoding_and_decoding(subject: Subject, text: str) -> None:
    vocabulary = subject.backend.vocabulary
    ids = vocabulary.encode(text)
    assert all(0 <= token < vocabulary.size for token in ids)
    assert vocabulary.decode(ids) == text.encode()
    assert b"".join(vocabulary.decode([token]) for token in ids) == text.encode(), "also when streamed id by id"


def test_begin_token_is_first_and_only_once(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    with_begin, without = vocabulary.encode("some text"), vocabulary.encode("some text", add_begin=False)
    assert with_begin == ([] if vocabulary.begin is None else [vocabulary.begin]) + without
    assert vocabulary.encode("", add_begin=False) == []


def test_control_tokens_spelled_in_text_stay_text(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    for token in range(vocabulary.size):
        if vocabulary.kinds[token] is not Kind.CONTROL:
            continue
        spelled = vocabulary.pieces[token].decode()
        ids = vocabulary.encode(f"a{spelled}b", add_begin=False)
        assert token not in ids, spelled
        assert vocabulary.decode(ids) == f"a{spelled}b".encode()


def test_parse_control_encodes_the_end_token(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    end = min(vocabulary.ends)
    spelled = vocabulary.pieces[end].decode()
    ids = vocabulary.encode(f"a{spelled}b", add_begin=False, parse_control=True)
    assert ids.count(end) == 1
    assert vocabulary.decode(ids) == b"ab", "control tokens have no text"


def test_fingerprint_is_stable(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    first = vocabulary.fingerprint
    assert first == vocabulary.fingerprint_below(vocabulary.size)
    assert (first.size, first.below) == (vocabulary.size, vocabulary.size)
    assert difference(first, vocabulary.fingerprint_below(vocabulary.size + 10)) is None
    assert vocabulary.fingerprint_below(100).ordinary != first.ordinary
