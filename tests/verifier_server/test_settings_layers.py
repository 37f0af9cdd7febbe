"""The verifier's settings by layers: flags over variables over `specpair.toml` over defaults."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.command_line.parser import flag
from verifier_server.engine.choice import TOKEN_ENGINES
from verifier_server.settings import PREFIX, ListenAddress, Settings, SettingsError, from_environment, from_flags

# Three values of a setting, for flag, variable and file, where 3, 4 and 5 are none of its values.
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    "port": (0, 9000, 9001),
    "model": (DEFAULT_TARGET, DEFAULT_DRAFT, Path("7")),
    "backend": ("torch", "mlx", "scripted"),
    "kv_type": ("f32", "q8_0", "q4_0"),
    "device": ("cpu", "cuda", "mps"),
    "dtype": ("float32", "bfloat16", "float16"),
    "draft": ("model", "off", "model"),
    "draft_corpus": (str(DEFAULT_TARGET), f"{DEFAULT_DRAFT},{DEFAULT_TARGET}", str(DEFAULT_DRAFT)),
    "hf": ("u/a", "u/b:Q8_0", "u/c"),
    "draft_hf": ("u/a", "u/b:Q8_0", "u/c"),
    "draft_weights": ("stored", "auto", "stored"),
    "draft_backend": ("torch", "mlx", "scripted"),
    "draft_device": ("cpu", "cuda", "mps"),
    "compile_widths": ("1,4", "8", "16,32"),
    "compile_spans": ("1,4", "8", "16,32"),
    "batch_tokens": (100, 200, 300),
    "prefill_chunk": (100, 200, 300),
    "max_body_bytes": (2000, 3000, 4000),
    "api_key": ("k1", "k2", "k3"),
    "hourly_price": (0.5, 1.0, 2.0),
    "allowed_hosts": ("*", "a.example", "*.b.example"),
    "cors_origins": ("*", "https://a.example", "http://b.example:3000"),
    "log_format": ("json", "text", "json"),
    "draft_head": (DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_DRAFT),
    "vllm_args": ("{seed = 1}", "{seed = 2}", "{seed = 3}"),
    "sglang_url": ("http://a:1", "https://b", "http://c:3/path"),
    "sglang_api_key": ("k1", "k2", "k3"),
    "tool_style": ("hermes", "llama", "json"),
}
FIELDS = {**ListenAddress.model_fields, **Settings.model_fields}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of `specpair.toml` in the working folder, which does not exist yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "specpair.toml"


def _values(name: str) -> tuple[Any, Any, Any]:
    if name in VALUES:
        return VALUES[name]
    if FIELDS[name].annotation == Path | None:
        return Path("/1"), Path("/2"), Path("/3")
    if type(FIELDS[name].default) is bool:
        other = not FIELDS[name].default
        return other, not other, other
    return (3, 4, 5) if FIELDS[name].default is not None else ("a", "b", "c")


@pytest.mark.parametrize("name", FIELDS)
def test_each_setting_is_taken_from_the_highest_layer(file: Path, name: str) -> None:
    others = {} if name == "backend" else {"VERIFIER_BACKEND": "scripted"}
    if name.startswith("draft_") and name not in ("draft_model", "draft_hf"):
        others["VERIFIER_DRAFT_MODEL"] = str(DEFAULT_DRAFT)
    if (engine := name.partition("_")[0]) in TOKEN_ENGINES:
        others["VERIFIER_BACKEND"] = engine
    if name == "draft_head":
        others["VERIFIER_BACKEND"] = "llama_cpp"
    if name == "compile_store":
        others["VERIFIER_BACKEND"] = "torch"  # it compiles
    if name == "sglang_api_key":
        others["VERIFIER_SGLANG_URL"] = "http://a:1"
    values = _values(name)
    text = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    quoted = f'"{text[2]}"' if isinstance(values[2], (str, Path)) else text[2]
    layers: tuple[tuple[Any, str, list[str], dict[str, str]], ...] = (
        (values[0], f"flag {flag(name)}", [f"{flag(name)}={text[0]}"], {PREFIX + name.upper(): text[1]}),
        (values[1], f"variable {PREFIX}{name.upper()}", [], {PREFIX + name.upper(): text[1]}),
        (values[2], f"{file} [verifier] {name}", [], {}),
    )
    file.write_text(f"[verifier]\n{name} = {quoted}\n")
    for value, origin, flags, variables in layers:
        both = from_flags(flags, {**others, **variables})
        settings = both[1] if name in ListenAddress.model_fields else both[0]
        found = getattr(settings, name)
        wanted = file.parent / value if isinstance(value, Path) else value
        if isinstance(found, tuple):
            found = ",".join(map(str, found))
        if isinstance(found, dict):
            found = f"{{seed = {found['seed']}}}"
        assert (found.get_secret_value() if isinstance(found, SecretStr) else found) == wanted
        assert settings.origin(name) == origin
    file.write_text("[verifier]\n")
    if name == "sglang_url":  # its engine needs one
        others["VERIFIER_BACKEND"] = "scripted"
    settings = from_flags([], others)[1 if name in ListenAddress.model_fields else 0]
    assert (getattr(settings, name), settings.origin(name)) == (FIELDS[name].default, "default")


FORMERLY = [("slots", "rows", "3"), ("draft_slots", "draft_rows", "2")]


@pytest.mark.parametrize(("name", "formerly", "value"), FORMERLY)
def test_setting_is_taken_by_its_former_name(file: Path, name: str, formerly: str, value: str) -> None:
    file.write_text("[verifier]\ndraft_backend = 'ngram'\n")
    old, variable = flag(formerly), f"VERIFIER_{formerly.upper()}"
    given = [
        (from_flags([f"{old}={value}"], {})[0], old),
        (from_flags([], {variable: value})[0], variable),
        (from_environment({variable: value}), variable),
    ]
    file.write_text(f"[verifier]\ndraft_backend = 'ngram'\n{formerly} = {value}\n")
    given.append((from_environment({}), f"{file} [verifier] {formerly}"))
    for settings, key in given:
        assert (getattr(settings, name), settings.key(name)) == (int(value), key)
    assert getattr(from_flags([], {f"VERIFIER_{name.upper()}": "7"})[0], name) == 7, "by either name, a layer overrides"


def test_address_in_the_file_is_for_the_program_alone(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text('[verifier]\nhost = "0.0.0.0"\nport = 9001\n')
    address = from_flags([], {})[1]
    assert (address.host, address.port) == ("0.0.0.0", 9001)
    address = from_flags(["--host", "::1"], {"VERIFIER_PORT": "0"})[1]
    assert (address.host, address.port) == ("::1", 0)
    address = from_flags([], {"VERIFIER_PORT": "", "VERIFIER_HOST": ""})[1]
    assert (address.host, address.port) == ("0.0.0.0", 9001), "an empty variable is none"
    assert caplog.text == "" and from_environment({}) == Settings()
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} [verifier] {name}: only the command 'verifier' reads this key; uvicorn takes --{name}"
        for name in ("host", "port")
    ]
    file.write_text("[verifier]\nport = 99999\n")
    with pytest.raises(SettingsError) as caught:
        from_flags([], {})
    assert str(caught.value) == f"{file} [verifier] port: must be in [0, 65535], got 99999"


def test_key_is_in_no_representation_and_in_no_error(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings, _ = from_flags(["--api-key", "sesame"], {})
    assert "sesame" not in repr(settings) + str(settings) + str(settings.model_dump())
    for flags in (["--api-key", "sesame", "--insecure", "yes"], ["--api-key", "sesame", "--max-drafts", "600"]):
        with pytest.raises(SettingsError) as caught:
            from_flags(flags, {})
        assert "sesame" not in str(caught.value) + str(caught.value.__context__) + caplog.text


def test_print_config_shows_all_settings_in_the_order_of_the_help(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[verifier]\nthreads = 2\n")
    with pytest.raises(SystemExit) as caught:
        from_flags(["--print-config", "--slots=3"], {"VERIFIER_PORT": "9000", "VERIFIER_API_KEY": "sesame"})
    assert caught.value.code == 0
    out = capsys.readouterr().out
    with pytest.raises(SystemExit):
        from_flags(["--help"], {})
    help_text = capsys.readouterr().out
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert lines.pop(0) == ["setting", "value", "from"]
    assert {line[0] for line in lines} == set(FIELDS)
    places = [re.search(rf"  {flag(line[0])}[ ,]", help_text).start() for line in lines]  # type: ignore[union-attr]
    assert places == sorted(places)
    given = [line for line in lines if not line[-1].endswith("default")]
    assert given == [
        ["port", "9000", "variable VERIFIER_PORT"],
        ["slots", "3", "flag --slots"],
        ["api_key", "(set)", "variable VERIFIER_API_KEY"],
        ["threads", "2", f"{file} [verifier] threads"],
    ]
