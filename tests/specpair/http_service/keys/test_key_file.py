"""The file of keys: what is read from it, and how keys are added and removed without touching the rest."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import (
    KeyFileError,
    KeyLimits,
    StoredKey,
    digest_of,
    new_key,
)

HASH = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True).filter(
    lambda name: name != "default" and not name.startswith("sp-")
)
limits = st.builds(
    KeyLimits,
    st.none() | st.integers(1, 1000),
    st.none() | st.integers(1, 1000),
    st.none() | st.floats(1e-3, 1e6),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def key(name: str, **given: object) -> StoredKey:
    return StoredKey(name, digest_of(name), KeyLimits(**given))  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(names, st.tuples(limits, st.booleans()), max_size=5), st.data())
def test_keys_that_were_added_are_read_and_one_can_be_removed(
    path: Path, wanted: dict[str, tuple[KeyLimits, bool]], data: st.DataObject
) -> None:
    path.unlink(missing_ok=True)
    keys = [StoredKey(name, digest_of(name), limits, admin) for name, (limits, admin) in wanted.items()]
    for each in keys:
        key_file.add(path, each)
    if keys:
        assert key_file.read(path) == keys
        gone = data.draw(st.sampled_from(keys))
        key_file.remove(path, gone.name)
        assert key_file.read(path) == [each for each in keys if each is not gone]


def test_comments_and_other_keys_stay(path: Path) -> None:
    written = (
        f'# our keys\n\n[one] # the first\nhash = "{HASH}"\n\n# two is the laptop\n["t.w.o"]\n'
        f'hash = "{OTHER}"\nsessions = 3 # enough\n'
    )
    path.write_text(written)
    key_file.add(path, key("three", requests=2))
    assert path.read_text() == written + f'\n[three]\nhash = "sha256:{digest_of("three").hex()}"\nrequests = 2\n'
    key_file.remove(path, "one")
    assert path.read_text().startswith("# our keys\n\n\n# two is the laptop\n")
    key_file.remove(path, "t.w.o")
    assert [each.name for each in key_file.read(path)] == ["three"]
    key_file.remove(path, "three")
    assert key_file.read(path) == []
    assert path.read_text().startswith("# our keys\n")


def test_last_line_without_an_end_is_not_glued_to_the_new_key(path: Path) -> None:
    path.write_text(f'[one]\nhash = "{HASH}"')
    key_file.add(path, key("two"))
    assert [each.name for each in key_file.read(path)] == ["one", "two"]


def test_name_is_taken_once(path: Path) -> None:
    key_file.add(path, key("one"))
    before = path.read_text()
    with pytest.raises(KeyFileError, match="has a key named one already: choose another name, or revoke"):
        key_file.add(path, key("one"))
    with pytest.raises(KeyFileError, match="has no key named two"):
        key_file.remove(path, "two")
    assert path.read_text() == before
    assert os.listdir(path.parent) == ["keys.toml"]


def test_new_file_is_private_and_an_old_one_keeps_its_permissions(path: Path) -> None:
    key_file.add(path, key("one"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    key_file.add(path, key("two"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_link_to_the_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    key_file.add(path, key("one"))
    link.symlink_to(path)
    key_file.add(link, key("two"))
    assert link.is_symlink() and len(key_file.read(path)) == 2


def test_two_programs_do_not_change_the_file_at_once(path: Path) -> None:
    path.with_name("keys.toml.new").touch()
    with pytest.raises(KeyFileError, match=r"keys\.toml\.new exists: another program is changing the keys"):
        key_file.add(path, key("one"))
    assert not path.exists()


def test_file_in_an_unusual_form_is_not_changed(path: Path) -> None:
    path.write_text(f'one = {{ hash = "{HASH}" }}\n[two]\nhash = "{OTHER}"\n')
    assert [each.name for each in key_file.read(path)] == ["one", "two"]
    with pytest.raises(KeyFileError, match="edit it by hand"):
        key_file.remove(path, "one")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\n[one\n", "not valid TOML, see line 2"),
        (f'[one]\nhash = "{HASH}"\n[one]\n', "not valid TOML, see line 3"),
        ("[one]\n", r"\[one\] hash: must be sha256: and 64"),
        ('[one]\nhash = "SECRET"', r"\[one\] hash: must be sha256: and 64"),
        ("[one]\nhash = 7", r"\[one\] hash: must be"),
        (f'[one]\nhash = "{HASH}"\nsesions = 1', r"\[one\] has a field that no key has; did you mean sessions\?"),
        (f'[one]\nhash = "{HASH}"\nSECRET = 1', r"\[one\] has a field that no key has; choose one of hash, sessions"),
        (f'[one]\nhash = "{HASH}"\nsessions = 0', "sessions: must be a whole number, at least 1"),
        (f'[one]\nhash = "{HASH}"\nrequests = true', "requests: must be a whole number"),
        (f'[one]\nhash = "{HASH}"\nrequests = "SECRET"', "requests: must be a whole number"),
        (f'[one]\nhash = "{HASH}"\ntokens_per_second = 0', "tokens_per_second: must be a number above 0"),
        (f'[one]\nhash = "{HASH}"\ntokens_per_second = nan', "tokens_per_second: must be a number above 0"),
        (f'[one]\nhash = "{HASH}"\nadmin = 1', "admin: must be true or false"),
        (f'[one]\nhash = "{HASH}"\n[two]\nhash = "{HASH}"', "one and two have the same hash"),
        ('one = "SECRET"', "one is no table"),
        ('["SECRET key"]\n', "a name has 1 to 64 letters"),
        ("[sp-SECRET]\n", "a name must not begin with 'sp-'"),
        ("[default]\n", "'default' is the name of the key that a setting gives"),
    ],
)
def test_error_names_the_file_and_the_place_but_quotes_nothing(path: Path, content: str, words: str) -> None:
    path.write_text(content)
    with pytest.raises(KeyFileError, match=words) as refused:
        key_file.read(path)
    message = str(refused.value)
    assert message.startswith(str(path)) and "SECRET" not in message and "\n" not in message


def test_missing_and_unreadable_files_are_named(path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"there is no file .*keys\.toml: the command 'key new NAME' makes it"):
        key_file.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(KeyFileError, match="not UTF-8"):
        key_file.read(path)
    with pytest.raises(KeyFileError, match="cannot be read"):
        key_file.read(path.parent)
    with pytest.raises(KeyFileError, match="cannot be written"):
        key_file.add(path.parent / "none" / "keys.toml", key("one"))


def test_new_keys_are_long_different_and_can_travel_in_a_header() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(each.startswith("sp-") and len(each) == 46 and each.isascii() and each.isprintable() for each in made)
