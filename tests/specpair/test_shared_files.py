"""Files that are replaced as a whole."""

import os
import stat
import sys
from pathlib import Path

import pytest

from specpair.shared_files import replacing


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_a_new_file_has_the_permissions_of_any_other_one_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    path, other = tmp_path / "report.html", tmp_path / "other"
    before = os.umask(0o022)
    try:
        other.touch()
        for content in (b"first", b"second"):
            with replacing(path) as file:
                file.write(content)
            assert path.read_bytes() == content
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode) == 0o644
    path.chmod(0o600)
    with replacing(path) as file:
        file.write(b"third")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"whole")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]
