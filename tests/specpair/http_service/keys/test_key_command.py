"""The commands `verifier key` and `drafter key`: what they print, and where."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drafter_client.cli import program as drafter_program
from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import KeyStore
from specpair.http_service.keys.key_file import KeyLimits
from verifier_server import program as verifier_program

Ran = tuple[int, str, str]
Run = Callable[..., Ran]


@pytest.fixture(params=["verifier", "drafter"])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def key(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
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


def test_new_key_is_printed_once_and_its_hash_stored(key: Run, tmp_path: Path) -> None:
    status, out, err = key("new", "laptop", "--sessions", "4", "--requests", "8", "--tokens-per-second", "2.5", *FILE)
    secret, path = out.strip(), tmp_path / "keys.toml"
    assert status == 0 and out == secret + "\n" and secret.startswith("sp-")
    assert "laptop" in err and secret not in err and secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = KeyStore(None, path).find(secret)
    assert found is not None
    assert (found.name, found.limits, found.admin) == ("laptop", KeyLimits(4, 8, 2.5), False)
    status, out, err = key("new", "boss", "--admin", *FILE)
    admin = KeyStore(None, path).find(out.strip())
    assert status == 0 and admin is not None and admin.admin and admin.limits == KeyLimits()


def test_list_shows_names_and_limits_only(key: Run, tmp_path: Path) -> None:
    secret = key("new", "laptop", "--tokens-per-second", "50", *FILE)[1].strip()
    key("new", "boss", "--admin", "--sessions", "2", *FILE)
    status, out, err = key("list", *FILE)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["name", "sessions", "requests", "tokens/s", "admin"],
        ["laptop", "-", "-", "50", "-"],
        ["boss", "2", "-", "-", "yes"],
    ]
    assert "sha256" not in out and secret not in out


def test_revoked_key_is_gone(key: Run, tmp_path: Path) -> None:
    secrets = [key("new", name, *FILE)[1].strip() for name in ("one", "two")]
    status, out, err = key("revoke", "one", *FILE)
    assert (status, out) == (0, "") and "one is revoked" in err
    store = KeyStore(None, tmp_path / "keys.toml")
    assert store.find(secrets[0]) is None and store.find(secrets[1]) is not None


def test_file_comes_from_the_settings(key: Run, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specpair.toml").write_text(f'[{program}]\nkeys_file = "a.toml"\n')
    assert key("new", "one")[0] == 0
    monkeypatch.setenv(f"{program.upper()}_KEYS_FILE", str(tmp_path / "b.toml"))
    assert key("new", "two")[0] == 0
    assert key("new", "three", "--keys-file", "c.toml")[0] == 0
    (tmp_path / "other.toml").write_text(f'[{program}]\nkeys_file = "d.toml"\n')
    monkeypatch.delenv(f"{program.upper()}_KEYS_FILE")
    assert key("new", "four", "--config", "other.toml")[0] == 0
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
    key: Run, program: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    status, out, err = key(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"{program}: ") and words.format(program.upper()) in err and "SECRET" not in err
    assert err.splitlines()[1] == f"{program}: 'key --help' lists the flags"
    assert not list(tmp_path.iterdir())


def test_file_that_cannot_be_changed_is_named(key: Run, program: str, tmp_path: Path) -> None:
    for arguments in (["list"], ["revoke", "one"]):
        status, out, err = key(*arguments, *FILE)
        assert (status, out) == (1, "") and err.startswith(f"{program}: there is no file") and "keys.toml" in err
    key("new", "one", *FILE)
    status, out, err = key("new", "one", *FILE)
    assert (status, out) == (1, "") and "has a key named one already" in err
