"""The drafter's settings by layers: flags over variables over `specpair.toml` over defaults."""

import argparse
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from drafter_client.cli.commands import (
    compare_options,
    compare_parser,
    drafter_options,
    drafter_parser,
    serve_options,
    serve_parser,
    solo_options,
    solo_parser,
)
from drafter_client.cli.flags import NAMES
from drafter_client.cli.steps import explained
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.command_line.parser import Parser, flag
from specpair.engines.errors import ModelLoadError
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier
from tests.forking import programs

COMMANDS: dict[str, tuple[Callable[[list[str]], Any], Callable[[], Parser]]] = {
    "drafter": (drafter_options, drafter_parser),
    "solo": (solo_options, solo_parser),
    "compare": (compare_options, compare_parser),
    "serve": (serve_options, serve_parser),
}
OF_ONE_RUN = {
    *(
        "help",
        argparse.SUPPRESS,
        "config",
        "print_config",
        "prompt",
        "prompt_file",
        "hf",
        "system",
        "stop",
        "output",
        "json",
        "stats",
        "logit_bias",
        "prediction",
        "prediction_file",
        "json_schema",
        "choice",
        "grammar",
    ),
    *("stream", "baseline", "host_name", "verbose", "profile", "profile_text", "which", "model", "runs", "lengths"),
}
# Three values of each setting, for flag, variable and file.
POLICY = "specpair.speculation.policy.experience"
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "verifier": ("http://a", "http://b", "http://c"),
    "api_key": ("k1", "k2", "k3"),
    "draft_hf": ("u/a", "u/b:Q8_0", "u/c"),
    "draft_weights": ("stored", "auto", "stored"),
    "serve_key": ("k1", "k2", "k3"),
    "keys_file": ("/1", "/2", "/3"),
    "router": ("http://a", "http://b", "http://c"),
    "router_key": ("k1", "k2", "k3"),
    "advertise": ("http://a", "http://b", "http://c"),
    "allowed_hosts": ("*", "a.example", "*.b.example"),
    "tool_style": ("hermes", "llama", "json"),
    "cors_origins": ("*", "https://a.example", "http://b.example:3000"),
    "ssl_certfile": ("/a.pem", "/b.pem", "/c.pem"),
    "ssl_keyfile": ("/a.key", "/b.key", "/c.key"),
    "mode": ("auto", "fused", "target"),
    "cache_salt": ("a", "b", "c"),
    "regex": ("a", "b", "c"),
    "grammar_after": ("a", "b", "c"),
    "draft_corpus": (str(DEFAULT_TARGET.parent), __file__, str(DEFAULT_DRAFT)),
    "policy": ("drafter_client:DraftingPolicy", f"{POLICY}:DraftingPolicy", "drafter_client:DraftingPolicy"),
    "draft_model": (str(DEFAULT_TARGET), __file__, str(DEFAULT_DRAFT.parent / "README.md")),
    "backend": ("torch", "mlx", "neuron_legacy"),
    "device": ("cpu", "cuda", "mps"),
    "dtype": ("float32", "bfloat16", "float16"),
    "context": (10, 20, 30),
    "kv_type": ("q8_0", "f32", "q8_0"),
    "compile_widths": ("1,4", "8", "16,32"),
    "compile_spans": ("1,4", "8", "16,32"),
    "compile_cache": ("/1", "/2", "/3"),
    "top_p": (0.25, 0.5, 0.75),
    "temperature": (0.25, 0.5, 0.75),
    "min_p": (0.25, 0.5, 0.75),
    "presence_penalty": (0.25, 0.5, 0.75),
    "frequency_penalty": (0.25, 0.5, 0.75),
    "host": ("a", "b", "c"),
    "log_format": ("json", "text", "json"),
    "strategy": ("greedy", "deterministic", "probabilistic"),
    "threshold": (0.25, 0.5, 0.75),
}
SWITCHES = {
    "access_log": False,
    "insecure": False,
    "share": False,
    "metrics_open": False,
    "strict": False,
    "keep_lines": False,
    "chat": False,
    "remember": True,
    "translate": False,
    "lookup": True,
    "lockstep": False,
    "compile": False,
}
NEEDED = {
    "threshold": ["--strategy=threshold"],
    "concurrency": ["--prompt-file=x"],
    "remember": ["--mode=auto"],
}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of `specpair.toml` in the working folder, which does not exist yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "specpair.toml"


def write(file: Path, *lines: str) -> None:
    file.write_text("\n".join(["[drafter]", *lines]) + "\n")
    file.chmod(0o600)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def test_every_flag_lasts_or_is_of_one_run() -> None:
    found = {action.dest for _, parser in COMMANDS.values() for action in parser().actions()}
    assert found == OF_ONE_RUN | set(NAMES.settings)


def _each_setting() -> Iterator[tuple[str, str]]:
    """Each with a command that has it: all commands read their settings by one function."""
    known: set[str] = set()
    for command, (_, parser) in COMMANDS.items():
        names = [action.dest for action in parser().actions() if action.dest in NAMES.settings]
        yield from ((command, name) for name in names if name not in known)
        known.update(names)


@pytest.mark.parametrize(("command", "name"), list(_each_setting()))
def test_each_setting_is_taken_from_the_highest_layer(
    file: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    read, parser = COMMANDS[command]
    needed = ["server"] if command == "solo" and name in ("verifier", "api_key", "patience") else []
    needed += NEEDED.get(name, []) if (command == "serve" and name == "remember") or command == "drafter" else []
    default = parser().get_default(name)
    values = VALUES.get(name, (3, 4, 5))
    flags, variable = [f"{flag(name)}={values[0]}"], f"DRAFTER_{name.upper()}"
    if name in SWITCHES:
        values = (SWITCHES[name], not SWITCHES[name], SWITCHES[name])
        flags = [flag(name) if values[0] else flag(f"no_{name}")]
    text = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    write(file, f'{name} = "{text[2]}"' if isinstance(values[2], str) else f"{name} = {text[2]}")
    monkeypatch.setenv(variable, text[1])
    for value, origin in (
        (values[0], f"flag {flags[0].partition('=')[0]}"),
        (values[1], f"variable {variable}"),
        (values[2], f"{file} [drafter] {name}"),
    ):
        options = read([*needed, *flags])
        assert (_plain(getattr(options, name)), options.settings.origin(name)) == (value, origin)
        if flags:
            flags = []
        else:
            monkeypatch.delenv(variable, raising=False)
    write(file)
    options = read([each for each in needed if each != "--strategy=threshold"])
    assert (getattr(options, name), options.settings.origin(name)) == (default, "default")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("threads = 0", "threads: must be in [1, 1024], got 0"),
        ('threads = "many"', "threads: 'many' is neither auto nor a whole number"),
        ("threads = true", "threads: 'true' is neither auto nor a whole number"),
        ('mode = "fuse"', "mode: no 'fuse'; did you mean fused?"),
        ('kv_type = "q8"', "kv_type: no 'q8'; did you mean q8_0?"),
        (
            'kv_type = "q4_0"',
            "kv_type: q4_0 is too coarse for a draft model: it picks other tokens, more so when a long prompt moves "
            "its keys to other positions. Choose f16 or q8_0",
        ),
        ('backend = "abacus"', "backend: no 'abacus'; choose one of llama_cpp, torch, mlx, neuron_legacy, ngram"),
        ('draft_model = ""', "draft_model: is empty: name a file or a folder"),
        ('lookup = "perhaps"', "lookup: Input should be a valid boolean, unable to interpret input"),
        ('strategy = "threshold"', "strategy = threshold: give the probability above which a draft token is accepted"),
        ('draft-model = "m"', "draft-model: no such setting; did you mean draft_model?"),
        ('prompt = "x"', "prompt: no such setting; 'drafter --help' lists them"),
    ],
)
def test_error_in_the_file_names_its_key(drafter: Command, file: Path, line: str, complaint: str) -> None:
    write(file, line)
    ran = drafter("--prompt", "x")
    assert (ran.status, ran.out) == (2, "")
    message, hint = ran.err.splitlines()
    assert message.startswith(f"drafter: {file} [drafter] {complaint}")
    assert hint == "drafter: '--help' lists the flags"


def test_error_in_a_variable_names_it(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTER_TEMPERATURE", "warm")
    ran = drafter("compare")
    assert ran.status == 2 and ran.err.splitlines() == [
        "drafter: DRAFTER_TEMPERATURE: 'warm' is not a number",
        "drafter: 'compare --help' lists the flags",
    ]


@pytest.mark.parametrize(
    ("command", "lines", "flags", "left_out"),
    [
        ("drafter", ['draft_model = "/m"', "lookup = false"], ["--mode", "target"], ["draft_model", "lookup"]),
        ("drafter", ["branches = 2", "lockstep = true"], ["--mode=fused"], ["branches", "lockstep"]),
        ("drafter", ["draft_n = 4"], ["--mode=target"], ["draft_n"]),
        ("drafter", ['draft_model = "/m"', "threads = 2"], ["--backend=ngram"], ["draft_model"]),
        ("drafter", ["threshold = 0.3"], [], ["threshold"]),
        ("drafter", ["threshold = 0.3", 'strategy = "threshold"'], ["--strategy=greedy"], ["threshold"]),
        ("drafter", ["translate = true"], ["--strategy=probabilistic"], ["translate"]),
        ("drafter", ["concurrency = 4"], ["--prompt=x"], ["concurrency"]),
        ("drafter", ['mode = "target"', 'draft_model = "/m"'], [], ["draft_model"]),
        ("solo", ['verifier = "http://v"', 'api_key = "k"', "patience = 3"], [], ["verifier", "api_key", "patience"]),
        ("solo", ["threads = 2"], ["server"], ["threads"]),
        ("compare", ['draft_model = "/m"', 'backend = "ngram"'], [], ["draft_model"]),
    ],
)
def test_lasting_setting_that_a_command_cannot_use_is_left_out(
    file: Path, command: str, lines: list[str], flags: list[str], left_out: list[str]
) -> None:
    read, parser = COMMANDS[command]
    write(file, *lines)
    options = read(flags)
    for name in left_out:
        assert getattr(options, name) == parser().get_default(name)
        assert options.settings.origin(name) in (f"{file} [drafter] {name}, not used", "default")


@pytest.mark.parametrize(
    ("lines", "flags", "complaint"),
    [
        (['mode = "target"'], ["--draft-model=/m"], "--draft-model: with {} mode = target nothing drafts here, leave"),
        (['mode = "fused"'], ["--no-lookup"], "--no-lookup: with {} mode = fused nothing drafts here, leave one"),
        (['backend = "ngram"'], ["--translate"], "--translate: {} backend = ngram drafts without a model, leave one"),
        (['strategy = "greedy"'], ["--threshold=0.3"], "--threshold: {} strategy = greedy has none, leave one of"),
    ],
)
def test_flag_that_a_lasting_setting_rules_out_is_an_error_that_names_both(
    drafter: Command, file: Path, lines: list[str], flags: list[str], complaint: str
) -> None:
    write(file, *lines)
    ran = drafter(*flags, "--prompt=x")
    assert ran.status == 2 and ran.err.startswith("drafter: " + complaint.format(f"{file} [drafter]"))


def test_engine_settings_go_with_their_engine(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, 'backend = "torch"', 'device = "cuda"', "threads = 2")
    for flags in (["--backend", "torch"], []):
        options = drafter_options(flags)
        assert (options.backend, options.device, options.threads) == ("torch", "cuda", 2)
    options = drafter_options(["--backend", "llama_cpp", "--threads", "3"])
    assert (options.backend, options.device, options.threads) == ("llama_cpp", None, 3)
    monkeypatch.setenv("DRAFTER_BACKEND", "mlx")
    monkeypatch.setenv("DRAFTER_DTYPE", "float16")
    options = drafter_options([])
    assert (options.backend, options.device, options.dtype) == ("mlx", None, "float16")
    options = drafter_options(["--backend", "torch"])
    assert (options.backend, options.device, options.dtype) == ("torch", "cuda", None)


def test_error_of_an_engine_names_the_setting_as_it_was_given(
    drafter: Command, verifier: Verifier, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, 'device = "cuda"', 'backend = "scripted"', 'draft_model = "1"', f'verifier = "{verifier.url}"')
    refusal = "the scripted backend has no such choice, leave it out"
    ran = drafter("--prompt", "a")
    assert (ran.status, ran.out, ran.err) == (1, "", f"drafter: {file} [drafter] device: {refusal}\n")
    monkeypatch.setenv("DRAFTER_DEVICE", "cpu")
    assert drafter("--prompt", "a").err == f"drafter: DRAFTER_DEVICE: {refusal}\n"
    assert drafter("--prompt", "a", "--device", "cpu").err == f"drafter: --device: {refusal}\n"
    unknown = ModelLoadError("mmap 'x' is unknown", "mmap")
    assert explained(unknown, drafter_options([])) == "mmap 'x' is unknown", "there is no such flag"


@pytest.mark.parametrize("command", ["drafter", "solo", "compare"])
def test_print_config_shows_the_settings_of_the_command(
    drafter: Command, file: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    write(file, "temperature = 0.5", 'api_key = "sesame"', "threads = 2")
    monkeypatch.setenv("DRAFTER_TOP_K", "7")
    words = [] if command == "drafter" else ["server"] if command == "solo" else [command]
    words = ["solo", *words] if command == "solo" else words
    ran = drafter(*words, "--print-config", "--top-p", "0.5")
    assert (ran.status, ran.err) == (0, "") and "sesame" not in ran.out
    lines = [line.split(maxsplit=2) for line in ran.out.splitlines()]
    assert lines.pop(0) == ["setting", "value", "from"]
    actions = [action.dest for action in COMMANDS[command][1]().actions()]
    assert [line[0] for line in lines] == [name for name in actions if name in NAMES.settings]
    assert {line[0]: line[1:] for line in lines if not line[-1].endswith("default")} == {
        "api_key": ["(set)", f"{file} [drafter] api_key"],
        "temperature": ["0.5", f"{file} [drafter] temperature"],
        "threads": ["2", f"{file} [drafter] threads" + (", not used" if command == "solo" else "")],
        "top_k": ["7", "variable DRAFTER_TOP_K"],
        "top_p": ["0.5", "flag --top-p"],
    }


def test_key_is_in_no_representation_of_the_options(file: Path, drafter: Command) -> None:
    write(file, 'api_key = "sesame"')
    options = drafter_options([])
    assert options.api_key == SecretStr("sesame") and "sesame" not in repr(options)
    assert "sesame" not in repr(drafter_options(["--api-key", "sesame"]))
    ran = drafter("--api-key", "-sesame", "--prompt", "x")
    assert ran.status == 2 and ran.err.splitlines()[0] == (
        "drafter: --api-key wants a value; write --api-key=KEY if it begins with a dash"
    )


def test_key_in_a_file_that_everybody_can_read_is_warned_of(file: Path, drafter: Command) -> None:
    write(file, 'api_key = "sesame"')
    file.chmod(0o644)
    ran = drafter("solo", "--prompt", "")
    assert ran.err.splitlines()[0] == (
        f"drafter: {file} holds api_key, and everybody on this machine can read it: chmod 600 {file}"
    )


def test_missing_file_ends_the_program_with_two_lines(file: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRAFTER_", "SPECPAIR_"))}
    command = ["-m", "drafter_client", "--print-config", "--seed", "7"]
    done = programs().run(command, file.parent, {**clean, "SPECPAIR_CONFIG": "no.toml"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"drafter: SPECPAIR_CONFIG: no such file: {file.parent / 'no.toml'}"
    done = programs().run(command, file.parent, clean)
    assert (done.returncode, done.stderr) == (0, "") and "flag --seed" in done.stdout
    assert re.search(rf"^draft_model +{re.escape(str(DEFAULT_DRAFT))} ", done.stdout, re.MULTILINE)


def test_a_draft_model_in_a_flag_overrules_one_that_lasts(file: Path) -> None:
    write(file, 'draft_hf = "u/a"')
    options = drafter_options(["--prompt=x", "--draft-model=/m.gguf"])
    assert (options.draft_hf, options.draft_model) == (None, Path("/m.gguf"))
    assert options.settings.origin("draft_hf").endswith(", not used")
    write(file, 'draft_model = "/m.gguf"')
    options = drafter_options(["--prompt=x", "--draft-hf=u/a"])
    assert (options.draft_hf, options.draft_model) == ("u/a", DEFAULT_DRAFT)
