"""The corpus: equal on all machines, without the held-out files, every window once per pass."""

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from models.training.corpus import HELD_OUT, CorpusError, is_chosen, read_corpus, windows


def library(root: Path, **files: str) -> Path:
    """A standard library with one held-out file and these files, whose names have __ for a slash."""
    for name, text in {"fractions": "held out", **files}.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_small_large_and_non_utf_8_files_are_left_out(tmp_path: Path) -> None:
    body = "x" * 300
    root = library(tmp_path, os=body, tiny="x", huge="x" * 300_001, encodings__ascii=body, lib__re=body + "y")
    (tmp_path / "latin.py").write_bytes(b"\xe9" * 300)
    corpus = read_corpus(root)
    assert corpus.training == [body + "y", body]  # lib/re.py, os.py
    assert corpus.held_out == ["held out"]


def test_tests_are_thinned_and_the_rest_is_kept() -> None:
    tests = [f"test/test_{index}.py" for index in range(1000)]
    assert 0.5 < sum(map(is_chosen, tests)) / 1000 < 0.6
    assert all(is_chosen(f"module_{index}.py") for index in range(100))
    assert is_chosen("testing.py")


def test_choice_does_not_depend_on_the_machine() -> None:
    chosen = [index for index in range(12) if is_chosen(f"test/test_{index}.py")]
    assert chosen == [0, 1, 2, 3, 4, 6, 8, 10]


def test_held_out_files_are_never_chosen() -> None:
    assert len(HELD_OUT) == 22
    assert not any(map(is_chosen, HELD_OUT))


def test_incomplete_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not a whole standard library: 0 files to train on, 1 held out"):
        read_corpus(library(tmp_path))


def test_pass_takes_every_window_once() -> None:
    tokens = np.arange(103, dtype=np.uint16)
    rows = np.concatenate(list(islice(windows(tokens, length=10, batch=3, seed=1), 3)))
    assert rows.shape == (9, 11)
    starts = sorted(int(row[0]) for row in rows)
    assert [later - earlier for earlier, later in pairwise(starts)] == [10] * 8
    assert all((row == np.arange(row[0], row[0] + 11)).all() for row in rows)


def test_windows_repeat_for_a_seed_and_shift_with_each_pass() -> None:
    tokens = np.arange(500, dtype=np.uint16)
    first, again = (list(islice(windows(tokens, length=10, batch=7, seed=5), 20)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert len({int(rows[0, 0]) % 10 for rows in first}) > 1


def test_too_little_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="30 tokens do not fill a batch of 4 windows of 10"):
        next(windows(np.zeros(30, dtype=np.uint16), length=10, batch=4, seed=0))
