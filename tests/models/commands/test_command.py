"""The command `models`: against a stand-in of a hub over real HTTP, with tiny models; and what heads of GGUF files
say of each kind of model, compared with what llama.cpp allocates for it."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.llama_cpp.backend import LlamaBackend
from backends.trial.tiny_llama import TinyModel, write_tiny_gguf
from gateway.openai_api.answer import reply_style
from models.commands.command import ServedModel
from models.commands.description import describe_gguf
from models.commands.showing import Bar, rows
from models.hub.catalogue import read_catalogue
from models.hub.gguf_head import read_head
from models.hub.repository import PAUSES
from specpair.engines.load_options import FreeMemory, LoadOptions
from tests.models.commands.conftest import Run
from tests.stand_ins.hub import HubStandIn, serving
from tests.stand_ins.tiny_architectures import ARCHITECTURES, RECURRENT, split_gguf, write_tiny_architecture

CHATML = {
    "default": """{{ messages[0].content }}<tool_call>\n{"name": <function-name>}</tool_call></think>""",
    "tool_use": "{{ tools }}",
}


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
def folder(files: dict[str, Path]) -> dict[str, bytes]:
    """The repository of the small model's folder."""
    return {path.name: path.read_bytes() for path in sorted((files["small"].parent / "small").iterdir())}


def test_a_model_is_pulled_listed_and_removed(run: Run, files: dict[str, Path]) -> None:
    assert run("list") == (0, "", "no model is in the cache: fetch one with `models pull user/repo`\n")
    status, out, _ = run("pull", "u/small")
    assert status == 0 and Path(out.strip()).read_bytes() == files["small"].read_bytes()
    run("pull", "u/large:q8_0")
    drafts = ServedModel("large", "hash", lambda path: None if path.name == "small-Q8_0.gguf" else "it differs")
    lines = run("list", serves=drafts)[1].splitlines()
    assert lines[0].split()[-3:] == ["drafts", "for", "large"]
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [
        ("u/large:Q8_0", "no"),
        ("u/small:Q8_0", "yes"),
    ]
    itself = ServedModel("small-Q8_0", "hash", lambda _path: None)
    assert [line.split()[-1] for line in run("list", serves=itself)[1].splitlines()[1:]] == ["yes", "no"]
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
    assert status == 0 and "vocabulary   the same" in out and "verdict      a pair, but a draft token takes" in out
    assert stand_in.counted("small-Q8_0.gguf") > 0
    assert "it saves nothing" in run("check", str(files["large"]), "u/small")[1]
    status, out, _ = run("check", "u/other", str(files["large"]))
    assert status == 1 and "the begin token is none in the draft model, 0 in the target" in out and "--translate" in out


def test_a_file_is_shown(run: Run, files: dict[str, Path]) -> None:
    out = run("show", str(files["large"]))[1]
    rows = dict(line.split("  ", 1) for line in out.splitlines())
    assert rows["architecture"].strip() == "llama: dense" and "512 tokens, as trained" in rows["context"]
    assert rows["chat template"].strip() == "default, which is used; with --chat-template NAME also tool_use"
    assert "264 ids (gpt2), hash of the text tokens " in rows["vocabulary"]
    assert rows["begin token"].strip().startswith("0 <|begin|>, put before each prompt")
    assert rows["end tokens"].strip() == "1 <|end|>" and rows["thoughts"].strip() == "between <think> and </think>"
    assert rows["tool calls"].strip() == "hermes: as the template shows"
    assert "none: give one with --chat-template FILE" in run("show", "u/small")[1]


def test_a_smaller_model_of_the_cache_is_suggested(run: Run) -> None:
    assert "no draft model is known for large: look for a smaller" in run("suggest", "u/large")[2]
    for name in ("u/small", "u/other", "u/large"):
        run("pull", name)
    status, out, _ = run("suggest", "u/large")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == ["name", "u/small:Q8_0"]


def test_the_catalogue_suggests_for_what_is_served(run: Run) -> None:
    gemma = next(each for each in read_catalogue().drafter if "gemma" in each.name)
    run("pull", "u/small")
    assert "no running verifier answers" in run("suggest")[2]
    served = ServedModel("tuned", gemma.vocabulary, lambda _path: None)
    lines = run("suggest", serves=served)[1].splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["name", "u/small:Q8_0", gemma.name]
    assert "on the hub" in lines[2] and gemma.licence in lines[2]
    assert "`verifier models pull NAME`" in run("suggest", serves=served)[2]
    itself = ServedModel("small-Q8_0", "f" * 64, lambda _path: None)
    assert run("suggest", serves=itself)[0] == 1


def test_the_catalogue_suggests_for_a_file_by_its_tokens(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = json.loads(run("show", "u/large", "--json")[1])["vocabulary"]["ordinary"]
    entry = {"name": "u/known:Q8_0", "vocabulary": ordinary, "licence": "MIT"}
    lines = [f'{key} = "{value}"' for key, value in entry.items()]
    (tmp_path / "own.toml").write_text("\n".join(["[[drafter]]", *lines, "targets = []", "bytes = 5_000_000"]))
    monkeypatch.setenv("SPECPAIR_CATALOGUE", str(tmp_path / "own.toml"))
    assert "u/known:Q8_0  5.0 MB  on the hub  MIT" in run("suggest", "u/large")[1]


@pytest.mark.parametrize(("changed", "status"), [({}, 0), ({"bytes": "5"}, 1), ({"vocabulary": f'"{"f" * 64}"'}, 1)])
def test_an_entry_of_the_catalogue_is_checked_against_its_file(
    run: Run,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    status: int,
) -> None:
    told = json.loads(run("show", "u/small", "--json")[1])
    ordinary, size = told["vocabulary"]["ordinary"], told["weight_bytes"]
    entry = {"name": '"u/small:Q8_0"', "vocabulary": f'"{ordinary}"', "targets": "[]", "bytes": str(size)}
    lines = [f"{key} = {value}" for key, value in (entry | {"licence": '"MIT"'} | changed).items()]
    (tmp_path / "own.toml").write_text("\n".join(["[[drafter]]", *lines]))
    monkeypatch.setenv("SPECPAIR_CATALOGUE", str(tmp_path / "own.toml"))
    got, out, _ = run("check", "u/small:q8_0")
    assert got == status and out.splitlines()[-1].split(maxsplit=1)[1] == ("they differ" if changed else "right")
    checked = json.loads(run("check", "u/small:Q8_0", "--json")[1])
    assert checked["right"] == (status == 0) and checked["vocabulary"]["file"] == ordinary
    assert "is no draft model of the catalogue" in run("check", "u/large")[2]


@pytest.mark.parametrize(
    "arguments",
    [("check",), ("list", "a"), ("pull",), ("lst",), (), ("pull", "u/a", "--json"), ("list", "--safetensors")],
)
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
        (("show", str(broken)), "broken.gguf is damaged or incomplete: fetch it again"),
    ):
        status, _, err = run(*arguments)
        assert status == 1 and words in err and err.count("\n") == 1


def test_a_folder_of_safetensors_is_a_model_as_any_other(
    run: Run, stand_in: HubStandIn, folder: dict[str, bytes], files: dict[str, Path]
) -> None:
    stand_in.repositories["u/folder"] = folder
    shown = run("show", "u/folder")[1]
    assert "llama: dense" in shown and "in F16" in shown and "512 tokens, as trained" in shown
    assert stand_in.sent["model.safetensors"] < len(folder["model.safetensors"])  # its head alone
    status, out, _ = run("check", "u/folder", str(files["large"]))
    assert status == 0 and "a pair" in out
    path = Path(run("pull", "u/folder")[1].strip())
    assert {each.name for each in path.iterdir()} == set(folder)
    assert run("show", "u/folder")[1].splitlines()[1:] == run("show", str(path))[1].splitlines()[1:]
    [line] = run("list")[1].splitlines()[1:]
    assert line.split()[0] == "u/folder" and " F16 " in line and line.endswith(" 264")
    served = ServedModel("large", json.loads(run("show", "u/folder", "--json")[1])["vocabulary"]["ordinary"], str)
    assert run("list", serves=served)[1].splitlines()[1].endswith(" yes")
    assert "u/folder  " in run("suggest", str(files["large"]))[1]
    assert run("remove", "u/folder")[0] == 0 and run("list")[1] == ""


def test_where_there_are_both_forms_gguf_is_pulled_unless_the_other_is_asked_for(
    run: Run, stand_in: HubStandIn, folder: dict[str, bytes]
) -> None:
    stand_in.repositories["u/small"] |= folder
    assert run("pull", "u/small")[1].strip().endswith("small-Q8_0.gguf")
    path = Path(run("pull", "u/small", "--safetensors")[1].strip())
    assert (path / "config.json").is_file()
    assert [line.split()[0] for line in run("list")[1].splitlines()[1:]] == ["u/small:Q8_0", "u/small"]


def test_parts_of_a_split_model_are_counted_together(
    run: Run, stand_in: HubStandIn, files: dict[str, Path], tmp_path: Path
) -> None:
    write_tiny_gguf(TinyModel(tmp_path / "tiny"), tmp_path / "split-Q8_0.gguf")
    parts = split_gguf(tmp_path / "split-Q8_0.gguf", 8)
    assert len(parts) == 3
    stand_in.repositories["u/split"] = {path.name: path.read_bytes() for path in parts}

    def weights(model: str) -> str:
        return next(line for line in run("show", model)[1].splitlines() if line.startswith("weights"))

    assert weights("u/split") == weights(str(parts[0])) == weights("u/small")
    run("pull", "u/split")
    assert weights("u/split:q8_0") == weights("u/small")
    assert len(run("list")[1].splitlines()) == 2
    assert run("remove", "u/split:Q8_0")[0] == 0 and run("list")[1] == ""


def test_a_model_larger_than_the_memory_is_pulled_with_a_warning_that_names_those_that_fit(
    run: Run, stand_in: HubStandIn, files: dict[str, Path]
) -> None:
    large, small = (files[name].read_bytes() for name in ("large", "small"))
    stand_in.repositories["u/both"] = {"m-Q8_0.gguf": large, "m-Q4_0.gguf": small, "m-Q2_K.gguf": small[:1000]}
    cache = 512 * 2 * 4 * 32 * 2  # bytes, for a context of 512 tokens
    status, out, err = run("pull", "u/both:Q8_0", room=FreeMemory(len(small) + cache))
    assert status == 0 and Path(out.strip()).is_file()
    assert "of KV cache for 512 tokens are more than the" in err and "fetched all the same" in err
    assert "Q4_0 (0.3 MB) and Q2_K (0.0 MB) would fit: write u/both:Q4_0" in err
    run("remove", "u/both")
    assert "fetched all the same" not in run("pull", "u/both:Q8_0", room=FreeMemory(len(large) + cache))[2]


def test_facts_are_told_to_programs(run: Run, files: dict[str, Path]) -> None:
    run("pull", "u/small")
    shown = json.loads(run("show", str(files["large"]), "--json")[1])
    assert shown["vocabulary"]["ids"] == 264 and shown["vocabulary"]["ends"] == [1]
    assert (shown["chat_template"], shown["tool_calls"]) == ("default", "hermes")
    assert shown["thoughts"] == {"begin": "<think>", "end": "</think>"}
    [listed] = json.loads(run("list", "--json")[1])
    assert listed["name"] == "u/small:Q8_0" and listed["drafts"] is None
    checked = json.loads(run("check", "u/small", str(files["large"]), "--json")[1])
    assert checked["pairs"] and checked["share"] < 1 and checked["draft"]["model"] == "u/small:Q8_0"
    [suggested] = json.loads(run("suggest", str(files["large"]), "--json")[1])
    assert suggested["where"] == "in the cache"


def test_a_pull_that_was_cut_off_is_listed_and_goes_on_or_is_removed(
    run: Run, stand_in: HubStandIn, files: dict[str, Path]
) -> None:
    size = files["small"].stat().st_size
    stand_in.cuts = [100_000] + [0] * (len(PAUSES) + 1)
    assert "was cut off" in run("pull", "u/small")[2]
    [line] = run("list")[1].splitlines()[1:]
    assert line.split()[:3] == ["u/small:Q8_0", "0.1", "MB"] and "begun, of 0.3 MB: pull continues" in line
    [listed] = json.loads(run("list", "--json")[1])
    assert (listed["bytes"], listed["whole_bytes"], listed["path"]) == (100_000, size, None)
    assert run("pull", "u/small")[0] == 0 and stand_in.sent[files["small"].name] == size
    assert "begun" not in run("list")[1]
    run("remove", "u/small")
    stand_in.cuts = [100_000] + [0] * (len(PAUSES) + 1)
    run("pull", "u/small")
    assert run("remove", "u/small:Q8_0")[2] == "u/small:Q8_0 is removed: 0.1 MB are free\n" and run("list")[1] == ""


def test_what_is_refused_leaves_nothing_begun(run: Run, stand_in: HubStandIn) -> None:
    stand_in.gated.add("u/small")
    assert "u/small/small-Q8_0.gguf is gated: accept its terms at" in run("pull", "u/small")[2]
    assert run("list")[1] == ""


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


def _pulled(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, term: str = "xterm") -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    with Bar("user/a-repository-of-models:Q8_0", "drafter") as bar:
        bar(1_000_000, 300_000_000)
        bar(2_000_000, 300_000_000)  # too soon to be told
        logging.getLogger("models.hub").warning("it is \x1b fetched again")
        bar(300_000_000, 300_000_000)
    return screen.getvalue()


def test_a_terminal_shows_one_line_that_fits_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _pulled(monkeypatch, Terminal()).split("\n")
    assert lines[1] == "drafter: it is \\x1b fetched again" and lines[-1] == ""
    assert lines[0].startswith("\r…") and "1.0 MB of 0.30 GB (0%)" in lines[0]
    assert max(len(part) for line in lines for part in line.split("\r")) == 39


@pytest.mark.parametrize(("screen", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_elsewhere_nothing_is_told_of_what_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, term: str
) -> None:
    assert _pulled(monkeypatch, screen, term) == "drafter: it is \\x1b fetched again\n"


KINDS = {
    "qwen3": "dense",
    "gemma3": "sliding window of 32 tokens",
    "qwen3moe": "mixture of experts, 2 of 8",
    "mamba2": "recurrent",
    "lfm2": "hybrid",
    "granitehybrid": "hybrid",
    "qwen3next": "hybrid, mixture of experts, 2 of 8",
    "qwen35": "hybrid",
}
MEANS = {  # what is told of drafts, with the architectures of which it is told
    "rejected draft tokens are taken back at no cost": set(ARCHITECTURES) - set(RECURRENT),
    "after a rejection a copy of the state is put back": set(RECURRENT),
    "reads more experts than one over a token": {"qwen3moe", "qwen3next"},
    "the KV cache keeps tokens beyond the window": {"gemma3"},
}


def _cache(path: Path, context: int) -> int:
    """Bytes that llama.cpp takes for a text of this many tokens."""
    backend = LlamaBackend(LoadOptions(model=path, context_length=context, threads=1))
    taken = backend.kv_bytes
    backend.close()
    return taken


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_kind_and_cache_of_each_architecture(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gguf"
    write_tiny_architecture(name, path)
    model = describe_gguf(name, [read_head(path)])
    assert model.layers.words == KINDS[name] and model.quantization == "F32"
    token_bytes = (_cache(path, 96) - _cache(path, 32)) / 64  # without the states, whose size no text changes
    assert 2 * model.kv_numbers <= token_bytes <= 2 * model.kv_numbers + 24  # states have each token's position, too
    told = dict(rows(model, reply_style))["speculation"]
    assert {part for part in MEANS if part in told} == {part for part, names in MEANS.items() if name in names}
    assert (model.bytes_a_token < model.weight_bytes) == ("experts" in KINDS[name])
