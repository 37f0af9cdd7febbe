"""The command `models`: against a stand-in of a hub over real HTTP, with tiny models."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.trial.tiny_gguf import write_tiny_gguf
from backends.trial.tiny_llama import TinyModel
from specpair.hub.catalogue import read_catalogue
from specpair.hub.repository import Hub
from specpair.model_commands import command
from tests.stand_ins.hub import HubStandIn, serving

Run = Callable[..., tuple[int, str, str]]
CHATML = {"default": "{{ messages[0].content }}", "tool_use": "{{ tools }}"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    small, large = TinyModel(folder / "small"), TinyModel(folder / "large", num_hidden_layers=4)
    other = TinyModel(folder / "other", bos_token_id=5)
    paths = {name: folder / f"{name}-Q8_0.gguf" for name in ("small", "large", "other")}
    for (name, path), model in zip(paths.items(), (small, large, other), strict=True):
        write_tiny_gguf(model, path, CHATML if name == "large" else {})
    return paths


@pytest.fixture
def stand_in(files: dict[str, Path]) -> Iterator[HubStandIn]:
    content = {f"u/{name}": {path.name: path.read_bytes(), "README.md": b"#"} for name, path in files.items()}
    with serving(content) as hub:
        yield hub


@pytest.fixture
def run(stand_in: HubStandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    made = command.parser("verifier")

    def ran(*arguments: str, serves: command.Running | None = None) -> tuple[int, str, str]:
        hub = Hub(stand_in.address, tmp_path / "cache", False, wait=lambda _seconds: None)
        status = command.run(made, made.parse(arguments), lambda: serves, lambda: hub)
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran


def test_a_model_is_pulled_listed_and_removed(run: Run, files: dict[str, Path]) -> None:
    assert run("list") == (0, "", "no model is in the cache: fetch one with `models pull user/repo`\n")
    status, out, _ = run("pull", "u/small")
    assert status == 0 and Path(out.strip()).read_bytes() == files["small"].read_bytes()
    run("pull", "u/large:q8_0")
    drafts = command.Running("large", "hash", lambda path: None if path.name == "small-Q8_0.gguf" else "it differs")
    lines = run("list", serves=drafts)[1].splitlines()
    assert lines[0].split()[-3:] == ["drafts", "for", "large"]
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [
        ("u/large:Q8_0", "no"),
        ("u/small:Q8_0", "yes"),
    ]
    assert "llama, dense" in lines[1] and " 264 " in lines[1]
    assert run("remove", "u/small:Q8_0")[0] == 0 and run("remove", "u/large")[0] == 0
    assert run("list")[1] == ""


def test_what_a_removal_does_not_find_is_told_with_what_there_is(run: Run) -> None:
    run("pull", "u/small")
    status, _, err = run("remove", "u/small:Q4_0")
    assert status == 1 and "u/small:Q4_0 is not in the cache: it has u/small:Q8_0" in err
    assert "nothing of that repository" in run("remove", "u/none:Q8_0")[2]


def test_a_pair_is_checked_by_heads_alone(run: Run, stand_in: HubStandIn, files: dict[str, Path]) -> None:
    status, out, _ = run("check", "u/small", "u/large")
    assert status == 0 and "vocabulary   the same" in out and "verdict      a pair\n" in out
    assert stand_in.counted("small-Q8_0.gguf") > 0
    assert "it saves nothing" in run("check", str(files["large"]), "u/small")[1]
    status, out, _ = run("check", "u/other", str(files["large"]))
    assert status == 1 and "the begin token is 5 in the draft model, 0 in the target" in out and "--translate" in out


def test_a_file_is_shown(run: Run, files: dict[str, Path]) -> None:
    out = run("show", str(files["large"]))[1]
    rows = dict(line.split("  ", 1) for line in out.splitlines())
    assert rows["architecture"].strip() == "llama: dense" and rows["chat templates"].strip() == "default, tool_use"
    assert "264 ids (gpt2), begin token 0, end token 1" in out and "512 tokens, as trained" in out
    assert "none: give one with --chat-template FILE" in run("show", "u/small")[1]


def test_a_smaller_model_of_the_cache_is_suggested(run: Run) -> None:
    assert "nothing is known to draft for u/large" in run("suggest", "u/large")[2]
    for name in ("u/small", "u/other", "u/large"):
        run("pull", name)
    status, out, _ = run("suggest", "u/large")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == ["name", "u/small:Q8_0"]


def test_the_catalogue_suggests_for_what_is_served(run: Run) -> None:
    gemma = next(each for each in read_catalogue() if "gemma" in each.name)
    run("pull", "u/small")
    assert "no verifier answers" in run("suggest")[2]
    served = command.Running("tuned", gemma.vocabulary, lambda _path: None)
    lines = run("suggest", serves=served)[1].splitlines()
    assert [line.split()[0] for line in lines] == ["name", "u/small:Q8_0", gemma.name]
    assert f"verifier models pull {gemma.name}" in lines[2] and gemma.licence in lines[2]
    itself = command.Running("small-Q8_0", "f" * 64, lambda _path: None)
    assert run("suggest", serves=itself)[0] == 1


@pytest.mark.parametrize("arguments", [("check", "a"), ("list", "a"), ("pull",), ("lst",)])
def test_wrong_arguments_are_refused(run: Run, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run(*arguments)
    assert raised.value.code == 2 and "verifier: " in capsys.readouterr().err


def test_errors_of_the_hub_and_of_files_end_with_one_line(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03")
    for arguments, words in (
        (("pull", "u/none"), "no model u/none"),
        (("pull", "one"), "is not the name of a model"),
        (("show", "missing.gguf"), "missing.gguf: no such file"),
        (("show", str(broken)), "no GGUF file that can be read"),
    ):
        status, _, err = run(*arguments)
        assert status == 1 and words in err and err.count("\n") == 1
