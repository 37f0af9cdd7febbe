"""The index of a folder follows its files: what is new or changed is tokenized, what is gone is dropped."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from specpair.corpus.files import FoundFile, Skipped, files_of
from specpair.corpus.index import Store, bring_up_to_date


class Encoder:
    """A token for each byte. It notes the texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.texts.append(text)
        return [*text.encode()]


def index(store: Store, root: Path, most: int = 1000) -> list[str]:
    """Bring the index up to date. Returns the texts that were tokenized."""
    encoder = Encoder()
    bring_up_to_date(store, root, encoder, most=most)
    return sorted(encoder.texts)


def held(store: Store) -> list[str]:
    """The texts in the index."""
    segments = [store.segment(name) for name in store.state().segments]
    return sorted(bytes(text.astype(np.uint8)).decode() for each in segments if each for text in store.texts(each))


def follows(store: Store, text: str) -> set[str]:
    """What follows the longest match of `text` in any segment."""
    found = [store.searched(name) for name in store.state().segments]
    best = [(array.matches([*text.encode()][::-1]), array) for array in found]
    longest = max(length for (length, _), _ in best)
    return {chr(array.token(place)) for (length, places), array in best if length == longest for place in places}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in {"a.py": "import numpy as np", "b.md": "A note.", "c/d.py": "return None"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_only_what_has_changed_is_read_again(tmp_path: Path, root: Path) -> None:
    store = Store(tmp_path / "store")
    assert index(store, root) == held(store) == ["A note.", "import numpy as np", "return None"]
    assert store.state().files == 3 and store.state().tokens == sum(map(len, held(store)))
    assert follows(store, "import nump") == {"y"}
    assert index(store, root) == []
    (root / "b.md").write_text("A longer note.")
    (root / "new.py").write_text("def new(): ...")
    (root / "a.py").unlink()
    assert index(store, root) == ["A longer note.", "def new(): ..."]
    assert held(store) == ["A longer note.", "def new(): ...", "return None"]
    os.utime(root / "b.md", (1, 1))
    assert index(store, root) == ["A longer note."]
    shutil.rmtree(root / "c")
    assert index(store, root) == [] and held(store) == ["A longer note.", "def new(): ..."]


def test_segments_have_a_size_and_are_dropped_when_they_are_made_anew(tmp_path: Path, root: Path) -> None:
    store = Store(tmp_path / "store")
    for number in range(40):
        (root / f"{number}.txt").write_text(f"{number:03} " + "word " * 20)
    assert len(index(store, root, 1000)) == 43
    assert 4 <= len(store.state().segments) <= 6
    (root / "7.txt").write_text("changed")
    assert index(store, root, 1000) == ["changed"]
    assert len(held(store)) == 43 and "changed" in held(store)
    files = {path.stem for path in store.folder.glob("*.segment")}
    assert files == {*store.state().segments}, "nothing is left of those that were replaced"


def test_what_is_done_in_a_bounded_time_is_kept_and_the_next_call_continues(tmp_path: Path, root: Path) -> None:
    """A file takes 0.3 s. The latest come first."""
    store, now, encoder = Store(tmp_path / "store"), 0.0, Encoder()
    for at, name in enumerate(("a.py", "b.md", "c/d.py")):
        os.utime(root / name, (at, at))

    def encode(text: str) -> list[int]:
        nonlocal now
        now += 0.3
        return encoder(text)

    def bounded() -> bool:
        return bring_up_to_date(store, root, encode, seconds=0.5, clock=lambda: now)

    assert not bounded() and held(store) == ["A note.", "return None"] and store.state().waiting == 1
    assert bounded() and len(encoder.texts) == len(held(store)) == 3 and bounded()
    assert len(store.state().segments) == 1, "small ones are joined"
    with store.writing():
        assert not bounded(), "another process is at it"
    (root / "new.py").write_text("def new(): ...")
    assert not bring_up_to_date(store, root, encode, seconds=0.0, clock=lambda: now) and len(held(store)) == 3


def test_an_interruption_loses_nothing_that_was_read(tmp_path: Path, root: Path) -> None:
    store, reported = Store(tmp_path / "store"), list[float]()

    def report(share: float) -> None:
        reported.append(share)
        if len(reported) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up_to_date(store, root, Encoder(), report=report)
    assert len(held(store)) == store.state().files == 2 and 0.0 < reported[0] < reported[1] < 1.0
    assert len(index(store, root)) == 1 and len(held(store)) == 3


def test_what_is_done_is_published_on_the_way_and_joined_at_the_end(tmp_path: Path, root: Path) -> None:
    store, now, files = Store(tmp_path / "store"), 0.0, list[int]()

    def encode(text: str) -> list[int]:
        nonlocal now
        now += 1.0
        files.append(store.state().files)
        return [*text.encode()]

    for number in range(9):
        (root / f"{number}.txt").write_text(f"number {number}")
    bring_up_to_date(store, root, encode, clock=lambda: now)
    assert files == [0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 6, 6]
    assert len(held(store)) == 12 and len(store.state().segments) == 1


@pytest.mark.parametrize("wrong", [b"", b"{}", b"[1", b'{"format": "0", "segments": ["x"]}', b"\xff"])
def test_a_broken_index_is_made_anew(tmp_path: Path, root: Path, wrong: bytes) -> None:
    store = Store(tmp_path / "store")
    index(store, root)
    (store.folder / "index.json").write_bytes(wrong)
    assert store.state().segments == ()
    assert len(index(store, root)) == len(held(store)) == 3


@pytest.mark.parametrize("kind", ["segment", "json"])
def test_a_broken_segment_is_made_anew(tmp_path: Path, root: Path, kind: str) -> None:
    store = Store(tmp_path / "store")
    index(store, root)
    (path,) = (each for each in store.folder.glob(f"*.{kind}") if each.name != "index.json")
    whole = path.read_bytes()
    for broken in (whole[:-5], None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        assert len(index(store, root)) == len(held(store)) == 3
        (path,) = (each for each in store.folder.glob(f"*.{kind}") if each.name != "index.json")


def test_what_is_no_text_is_left_out(tmp_path: Path, root: Path) -> None:
    (root / "picture.png").write_bytes(b"\x89PNG\0\0")
    (root / "latin.txt").write_bytes("café".encode("latin-1"))
    (root / "server.pem").write_text("secret")
    (root / ".env").write_text("KEY=secret")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.js").write_text("made")
    (root / "large.csv").write_text("1" * (1 << 20) + "1")
    (root / "link.py").symlink_to(root / "a.py")
    store = Store(tmp_path / "store")
    index(store, root)
    assert [text for text in held(store) if text] == ["A note.", "import numpy as np", "return None"]
    assert store.state().skipped == {"binary": 2, "keys": 1, "large": 1}
    assert index(store, root) == [], "nor read again"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_of_a_repository_what_git_ignores_is_left_out(root: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitignore").write_text("*.md\nlogs/\n")
    (root / "logs").mkdir()
    (root / "logs" / "today.txt").write_text("noise")
    names = [Path(each.path).name for each in files_of(root)]
    assert sorted(names) == ["a.py", "d.py"]
    assert [Path(each.path).name for each in files_of(root.parent)] == names, "also below the folder that is named"
    assert [type(each) for each in files_of(root / "b.md")] == [FoundFile], "a file that is named is meant"
    assert not [each for each in files_of(root) if isinstance(each, Skipped)]
    assert [Path(each.path).name for each in files_of(root / "logs")] == ["today.txt"]
