"""Every engine that takes trees judges their paths as it would one by one, and goes on from the path that is kept."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from specpair.engines.backend import Entry, Logits, TopLogitsSpec
from specpair.engines.errors import BadEntry
from specpair.speculation.draft import depths, leaves, paths
from specpair.speculation.sampling.top_logits import TopLogits
from tests.conformance.conftest import Subject

HELD = 10  # tokens in a slot before a tree, of which a pass feeds the last one again
TREES = {
    "chain": [1, 1, 1, 1],
    "siblings": [1, 2, 3],
    "comb": [1, 1, 3, 2, 3],
    "wide": [1, 2, 3, 3, 4, 4, 3, 8, 3, 3],
    "levels": [1, 2, 2, 2, 3, 3, 4, 4],
}
every_tree = pytest.mark.parametrize("parents", TREES.values(), ids=TREES)


@pytest.fixture
def subject(subject: Subject) -> Subject:
    assert subject.backend.takes_trees is subject.candidate.takes_trees
    if not subject.backend.takes_trees:
        pytest.skip("this engine takes no trees")
    return subject


def tokens_of(subject: Subject, parents: Sequence[int], seed: int = 0) -> list[int]:
    """Tokens of the tests' text, all of them different, and others than at the text's begin."""
    different = sorted(set(subject.ids) - set(subject.ids[:HELD]))
    return [int(each) for each in np.random.default_rng(seed).permutation(different)[: len(parents)]]


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """The nodes on the path to one, itself included."""
    return [int(each) for each in np.flatnonzero(paths(parents)[node])]


def entry_of(subject: Subject, slot: int, parents: Sequence[int], seed: int = 0) -> Entry:
    """The last token that a slot holds, and a tree behind it."""
    return Entry(slot, HELD - 1, [subject.ids[HELD - 1], *tokens_of(subject, parents, seed)], 0, parents)


def judged(subject: Subject, entry: Entry, before: Sequence[int]) -> list[Logits]:
    """The logits after each of an entry's tokens, by texts read one by one. `before`: the tokens that it follows."""
    trunk = [*before, *entry.tokens[: entry.trunk]]
    rows = list(subject.fresh(trunk)[len(before) :])
    for node in range(len(entry.parents)):
        path = [entry.tokens[entry.trunk + each] for each in path_to(entry.parents, node)]
        rows.append(subject.fresh([*trunk, *path])[-1])
    return rows[entry.logits_from :]


def alike(subject: Subject, rows: Iterable[Logits], expected: Iterable[Logits]) -> bool:
    return subject.same(np.stack(list(rows)), np.stack(list(expected)))


@every_tree
def test_logits_of_a_tree_equal_those_of_its_paths_one_by_one(subject: Subject, parents: list[int]) -> None:
    subject.feed(0, 0, subject.ids[:HELD])
    entry = entry_of(subject, 0, parents)
    rows = subject.backend.extend([entry])[0].copy()
    assert subject.backend.length(0) == HELD
    subject.backend.keep(0, [])
    assert alike(subject, rows, judged(subject, entry, subject.ids[: HELD - 1]))


@every_tree
def test_a_slot_goes_on_from_any_path_that_is_kept(subject: Subject, parents: list[int]) -> None:
    """And from each place within it."""
    later = subject.ids[40:43]
    for node in range(len(parents)):
        subject.feed(0, 0, subject.ids[:HELD])
        entry = entry_of(subject, 0, parents)
        subject.backend.extend([entry])
        path = [1 + each for each in path_to(parents, node)]
        subject.backend.keep(0, path)
        text = [*subject.ids[:HELD], *(entry.tokens[each] for each in path)]
        assert subject.backend.length(0) == len(text)
        got = subject.feed(0, len(text), later)
        assert subject.same(got, subject.fresh([*text, *later])[len(text) :])
        back = HELD + depths(parents)[node] // 2
        got = subject.feed(0, back, later[::-1])
        assert subject.same(got, subject.fresh([*text[:back], *later[::-1]])[back:])


def test_trees_share_a_pass_with_chains_and_prompts(subject: Subject) -> None:
    """Of two trees one follows a prompt, and neither path is kept before another pass."""
    ids, backend = subject.ids, subject.backend
    first, second = TREES["comb"], TREES["levels"]
    prompt = Entry(1, 0, [*ids[20:28], *tokens_of(subject, second, 1)], 6, second)
    subject.feed(0, 0, ids[:HELD])
    batch = [prompt, Entry(2, 0, ids[50:62], 11), entry_of(subject, 0, first)]
    rows = [each.copy() for each in backend.extend(batch)]
    assert [backend.length(slot) for slot in (0, 1, 2)] == [HELD, 8, 12]
    one = subject.feed(2, 12, ids[62:63])
    backend.keep(1, [9, 11])
    backend.keep(0, [3])
    kept = [
        (0, [*ids[:HELD], batch[2].tokens[3]]),
        (1, [*ids[20:28], prompt.tokens[9], prompt.tokens[11]]),
        (2, ids[50:63]),
    ]
    later = [each.copy() for each in backend.extend([Entry(slot, len(text), ids[5:7], 0) for slot, text in kept])]
    assert [backend.length(slot) for slot in (0, 1, 2)] == [len(text) + 2 for _, text in kept]
    backend.release(2)
    for got, (_, text) in zip(later, kept, strict=True):
        assert subject.same(got, subject.fresh([*text, *ids[5:7]])[len(text) :])
    assert alike(subject, rows[0], judged(subject, prompt, []))
    assert alike(subject, rows[2], judged(subject, batch[2], ids[: HELD - 1]))
    assert subject.same(np.concatenate([rows[1], one]), subject.fresh(ids[50:63])[11:])


def test_rounds_of_trees_leave_the_logits_unchanged(subject: Subject) -> None:
    """In each round the text goes on along a path of a random tree, or none, as another slot's does."""
    backend, random = subject.backend, np.random.default_rng(3)
    texts = [subject.ids[:HELD], subject.ids[30 : 30 + HELD]]
    for slot, text in enumerate(texts):
        subject.feed(slot, 0, text)
    texts = [list(text) for text in texts]
    for _ in range(15):
        batch = []
        for slot, text in enumerate(texts):
            parents = [int(random.integers(1, min(at, 3) + 2)) for at in range(random.integers(1, 9))]
            while len(leaves(parents)) > (backend.max_leaves or len(parents)):
                parents.pop()
            tokens = [text[-1], *tokens_of(subject, parents, int(random.integers(99)))]
            batch.append(Entry(slot, len(text) - 1, tokens, 0, parents))
        backend.extend(batch)
        for entry, text in zip(batch, texts, strict=True):
            path = path_to(entry.parents, int(random.integers(len(entry.parents))))[: random.integers(9)]
            backend.keep(entry.slot, [1 + each for each in path])
            text += [entry.tokens[1 + each] for each in path]
    for slot, text in enumerate(texts):
        assert backend.length(slot) == len(text)
        got = subject.feed(slot, len(text), subject.ids[:2])
        assert subject.same(got, subject.fresh([*text, *subject.ids[:2]])[len(text) :])


def test_a_slot_with_a_tree_can_be_copied_emptied_and_overwritten(subject: Subject) -> None:
    backend, ids = subject.backend, subject.ids
    subject.feed(0, 0, ids[:HELD])
    subject.feed(1, 0, ids[:HELD])
    trees = [entry_of(subject, slot, TREES["wide"], slot) for slot in (0, 1)]
    backend.extend(trees)
    if backend.can_copy:
        backend.copy(0, 1, HELD)
        with pytest.raises(BadEntry, match="fed no tree"):
            backend.keep(1, [1])
        assert subject.same(subject.feed(1, HELD, ids[HELD:14]), subject.fresh(ids[:14])[HELD:])
    backend.release(1)
    backend.keep(0, [2, 6, 9])
    text = [*ids[:HELD], *(trees[0].tokens[each] for each in (2, 6, 9))]
    assert subject.same(subject.feed(0, len(text), ids[:2]), subject.fresh([*text, *ids[:2]])[len(text) :])
    assert subject.same(subject.feed(1, 0, ids[:5]), subject.fresh(ids[:5]))


def test_top_logits_of_a_tree_equal_those_of_whole_rows(subject: Subject) -> None:
    backend, size = subject.backend, subject.backend.vocabulary.size
    subject.feed(0, 0, subject.ids[:HELD])
    entry = entry_of(subject, 0, TREES["comb"])
    top = list(backend.extend_top_logits([entry], [TopLogitsSpec(16, 0.8, size)])[0])
    backend.keep(0, [1])
    subject.feed(0, 0, subject.ids[:HELD])
    whole = backend.extend([entry])[0].copy()
    assert len(top) == len(whole) == len(entry.tokens)
    for row, exact in zip(top, whole, strict=True):
        assert subject.same(row.logits, exact[row.ids]) if isinstance(row, TopLogits) else subject.same(row, exact)


def test_wrong_trees_and_paths_are_refused_and_change_nothing(subject: Subject) -> None:
    backend, ids = subject.backend, subject.ids
    subject.feed(0, 0, ids[:HELD])
    for parents in ([0], [2], [1, 3], [1] * 3):
        with pytest.raises(BadEntry, match="slot 0: parents are "):
            backend.extend([Entry(0, HELD - 1, ids[HELD - 1 : HELD + 2], 0, parents)])
    for most in (backend.max_leaves, backend.max_nodes):
        wide = [1 + at for at in range((most or 0) + 1)]
        if most is not None and len(wide) < backend.max_batch_tokens:
            with pytest.raises(BadEntry, match=rf"slot 0: a tree of {most + 1} .* takes {most} here at most"):
                backend.extend([Entry(0, HELD - 1, [*ids[:1], *tokens_of(subject, wide)[:1] * len(wide)], 0, wide)])
    with pytest.raises(BadEntry, match="slot 0: the last pass fed no tree to it"):
        backend.keep(0, [])
    entry = entry_of(subject, 0, TREES["comb"])
    backend.extend([entry])
    for path in ([0], [6], [2], [1, 3, 4], [1, 1], [-1], [3, 1]):
        with pytest.raises(BadEntry, match=r"slot 0: \[.*\] is no path through the tree of \[1, 1, 3, 2, 3\]"):
            backend.keep(0, path)
    backend.keep(0, [1, 2])
    with pytest.raises(BadEntry, match=r"slot 0: .* or its path was chosen"):
        backend.keep(0, [1])
    text = [*ids[:HELD], *entry.tokens[1:3]]
    assert backend.length(0) == len(text)
    assert subject.same(subject.feed(0, len(text), ids[:2]), subject.fresh([*text, *ids[:2]])[len(text) :])
