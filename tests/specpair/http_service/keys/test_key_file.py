"""The file of keys, and the commands `verifier key` and `drafter key` that change it without touching the rest."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafter_client.cli import program as drafter_program
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import KeyStore
from specpair.http_service.keys.key_file import (
    KeyFileError,
    KeyLimits,
    StoredKey,
    digest_of,
    new_key,
)
from verifier_server import program as verifier_program

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


Ran = tuple[int, str, str]
Run = Callable[..., Ran]


@pytest.fixture(params=["verifier", "drafter"])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run_key(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `PROGRAM key …` in an empty folder: status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    for name in ("SPECPAIR_CONFIG", "VERIFIER_KEYS_FILE", "DRAFTER_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)

    def ran(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", [program, "key", *arguments])
        try:
            status = verifier_program.main() if program == "verifier" else drafter_program.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran


FILE = ("--keys-file", "keys.toml")


def test_new_key_is_printed_once_and_its_hash_stored(run_key: Run, tmp_path: Path) -> None:
    status, out, err = run_key(
        "new", "laptop", "--sessions", "4", "--requests", "8", "--tokens-per-second", "2.5", *FILE
    )
    secret, path = out.strip(), tmp_path / "keys.toml"
    assert status == 0 and out == secret + "\n" and secret.startswith("sp-")
    assert "laptop" in err and secret not in err and secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = KeyStore(None, path).find(secret)
    assert found is not None
    assert (found.name, found.limits, found.admin) == ("laptop", KeyLimits(4, 8, 2.5), False)
    status, out, err = run_key("new", "boss", "--admin", *FILE)
    admin = KeyStore(None, path).find(out.strip())
    assert status == 0 and admin is not None and admin.admin and admin.limits == KeyLimits()


def test_list_shows_names_and_limits_only(run_key: Run, tmp_path: Path) -> None:
    secret = run_key("new", "laptop", "--tokens-per-second", "50", *FILE)[1].strip()
    run_key("new", "boss", "--admin", "--sessions", "2", *FILE)
    status, out, err = run_key("list", *FILE)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["name", "sessions", "requests", "tokens/s", "admin", "joined", "last", "seen"],
        ["laptop", "-", "-", "50", "-", "-", "-"],
        ["boss", "2", "-", "-", "yes", "-", "-"],
    ]
    assert "sha256" not in out and secret not in out


def test_revoked_key_is_gone(run_key: Run, tmp_path: Path) -> None:
    secrets = [run_key("new", name, *FILE)[1].strip() for name in ("one", "two")]
    status, out, err = run_key("revoke", "one", *FILE)
    assert (status, out) == (0, "") and "one is revoked" in err
    store = KeyStore(None, tmp_path / "keys.toml")
    assert store.find(secrets[0]) is None and store.find(secrets[1]) is not None


def test_file_comes_from_the_settings(
    run_key: Run, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specpair.toml").write_text(f'[{program}]\nkeys_file = "a.toml"\n')
    assert run_key("new", "one")[0] == 0
    monkeypatch.setenv(f"{program.upper()}_KEYS_FILE", str(tmp_path / "b.toml"))
    assert run_key("new", "two")[0] == 0
    assert run_key("new", "three", "--keys-file", "c.toml")[0] == 0
    (tmp_path / "other.toml").write_text(f'[{program}]\nkeys_file = "d.toml"\n')
    monkeypatch.delenv(f"{program.upper()}_KEYS_FILE")
    assert run_key("new", "four", "--config", "other.toml")[0] == 0
    found = {path.name: [each.name for each in key_file.read(path)] for path in tmp_path.glob("?.toml")}
    assert found == {"a.toml": ["one"], "b.toml": ["two"], "c.toml": ["three"], "d.toml": ["four"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new", "one"], "no file of keys: name it with --keys-file, {}_KEYS_FILE, or keys_file in specpair.toml"),
        (["new", *FILE], "new wants the name of a key"),
        (["revoke", *FILE], "revoke wants the name of a key"),
        (["list", "one", *FILE], "list takes no name"),
        (["new", "sp-SECRET", *FILE], "a name must not begin with 'sp-'"),
        (["new", "default", *FILE], "'default' is the name of the key that a setting gives"),
        (["new", "one", "--sessions", "0", *FILE], "sessions: must be a whole number, at least 1"),
        (["new", "one", "--tokens-per-second", "inf", *FILE], "tokens_per_second: must be a number above 0"),
        (["revoke", "one", "--requests", "3", *FILE], "--requests: only a new key gets limits"),
        (["nwe", "one", *FILE], "did you mean new?"),
        (["new", "one", "--keys-fiel", "x"], "did you mean --keys-file?"),
    ],
)
def test_bad_flags_end_with_one_line_and_change_nothing(
    run_key: Run, program: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    status, out, err = run_key(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"{program}: ") and words.format(program.upper()) in err and "SECRET" not in err
    assert err.splitlines()[1] == f"{program}: 'key --help' lists the flags"
    assert not list(tmp_path.iterdir())


def test_file_that_cannot_be_changed_is_named(run_key: Run, program: str, tmp_path: Path) -> None:
    for arguments in (["list"], ["revoke", "one"]):
        status, out, err = run_key(*arguments, *FILE)
        assert (status, out) == (1, "") and err.startswith(f"{program}: there is no file") and "keys.toml" in err
    run_key("new", "one", *FILE)
    before = (tmp_path / "keys.toml").read_text()
    for arguments, words in (
        (["new", "one"], "has a key named one already: choose another name, or revoke"),
        (["revoke", "two"], "has no key named two"),
    ):
        status, out, err = run_key(*arguments, *FILE)
        assert (status, out) == (1, "") and words in err
    assert (tmp_path / "keys.toml").read_text() == before and os.listdir(tmp_path) == ["keys.toml"]
