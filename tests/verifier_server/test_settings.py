"""Settings: flags, variables, the file, their order and their errors; chat templates."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.llama_cpp.model import read_gguf_vocabulary
from backends.registry import WITH_HEADS
from backends.scripted import Script, ScriptedBackend
from backends.trial.tiny_llama import TinyModel, write_tiny_gguf
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.command_line.layers import Names
from specpair.command_line.parser import flag
from specpair.drafters.composed_drafter import SPARE_CELLS
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import FASTEST, STORED, LoadOptions
from specpair.speculation.drafting.composed_context import SIZES
from tests.verifier_server.conftest import settings
from verifier_server.app import refuse_workers
from verifier_server.loading import choose_chat_template
from verifier_server.options import OPTIONS
from verifier_server.service import Service
from verifier_server.settings import PREFIX, SettingsError, from_environment, from_flags


def test_defaults_serve_the_shipped_target() -> None:
    options = from_environment({}).load_options()
    assert options == LoadOptions(model=DEFAULT_TARGET, slots=None, context_length=None, head="auto")


def test_engine_settings_reach_the_load_options(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.touch()
    flags = ["--slots=2", "--context=99", "--batch-tokens=70", "--gpu-layers=5", "--threads=3", "--kv-type=q8_0"]
    flags += ["--mmap=no", "--flash-attention=no", "--deterministic=yes", f"--model={model}"]
    settings, _ = from_flags(flags, {})
    assert settings.load_options() == LoadOptions(
        model=model,
        slots=2,
        context_length=99,
        batch_tokens=70,
        gpu_layers=5,
        threads=3,
        kv_type="q8_0",
        mmap=False,
        flash_attention=False,
        deterministic=True,
        head="auto",
    )


@pytest.mark.parametrize("backend", WITH_HEADS)
@pytest.mark.parametrize(("draft", "head"), [("auto", "auto"), ("head", "on"), ("model", "off"), ("off", "off")])
def test_what_drafts_says_whether_the_head_is_loaded(draft: str, head: str, backend: str) -> None:
    settings, _ = from_flags([f"--draft={draft}", f"--backend={backend}"], {})
    assert settings.load_options().head == head
    assert not settings.drafts, "no draft model is named"


@pytest.mark.parametrize("draft", ["head", "off"])
def test_a_draft_model_that_would_not_be_used_is_refused(draft: str) -> None:
    with pytest.raises(SettingsError, match=rf"^--draft-model: draft is {draft}: leave one of the two out"):
        from_flags([f"--draft={draft}", f"--draft-model={DEFAULT_DRAFT}"], {})


def test_a_head_needs_an_engine_that_runs_it() -> None:
    with pytest.raises(SettingsError, match=r"^--draft: the engine mlx runs no head .*: set .* to llama_cpp or torch"):
        from_flags(["--draft=head", "--backend=mlx"], {})


def test_draft_model_on_the_same_engine_shares_the_target_s_options() -> None:
    flags = [f"--draft-model={DEFAULT_DRAFT}", "--kv-type=q8_0", "--mmap=no", "--threads=2", "--deterministic=yes"]
    settings, _ = from_flags(flags, {})
    assert settings.drafts and settings.draft_slots_for(3) == 3 and settings.draft_slots_for(16) == 8
    expected = LoadOptions(model=DEFAULT_DRAFT, slots=8, context_length=2048, kv_type="q8_0", mmap=False)
    spare = replace(expected, spare_slots=8, spare_from=SIZES.engine_context)
    expected = replace(spare, contexts=8, shared_cells=8 * SPARE_CELLS, weights=FASTEST)
    assert settings.draft_options(16, 2048) == expected
    assert settings.load_options().weights == STORED, "those of the target are the text's"
    coarse, _ = from_flags(["--draft-model", str(DEFAULT_DRAFT), "--kv-type=q4_0"], {})
    kept = coarse.load_options().kv_type, coarse.draft_options(16, 2048).kv_type
    assert kept == ("q4_0", "q8_0"), "too coarse for a draft model"
    settings, _ = from_flags([*flags, "--draft-threads=3", "--draft-slots=20"], {})
    options = settings.draft_options(16, 131072)
    assert (options.threads, options.slots, options.context_length) == (3, 20, None)


BAD = [
    ("slots", "nope", "'nope' is neither auto nor a whole number"),
    ("slots", "0", "must be at least 1, got 0"),
    ("threads", "99999", "must be in [1, 1024], got 99999"),
    ("api_key", "k\u00e9y", "a header can carry letters, digits and signs of ASCII only"),
    ("gpu_layers", "-2", "must be at least -1, got -2"),
    ("batch_tokens", "7", "must be at least 8, got 7"),
    ("kv_type", "q5", "no 'q5'; choose one of f32, f16, q8_0, q4_0"),
    ("max_drafts", "512", "512 must be below batch_tokens (512)"),
    ("max_body_bytes", "10", "must be at least 1024, got 10"),
    ("max_sessions", "none", "'none' is not a whole number"),
    ("session_ttl", "0", "must be above 0, got 0"),
    ("session_ttl", "nan", "must be above 0, got nan"),
    ("api_key", "", "should have at least 1 character"),
    ("backend", "lama", "'lama' is unknown, choose one of llama_cpp, torch, mlx, neuron_legacy"),
    ("model", "/nowhere/m.gguf", "no such file: /nowhere/m.gguf"),
    *((name, "", "is empty: name a file or a folder") for name in sorted(Names("verifier", OPTIONS).paths)),
    ("draft_model", "/nowhere/d.gguf", "no such file: /nowhere/d.gguf"),
    ("draft_backend", "lama", "'lama' is unknown, choose one of llama_cpp, torch, mlx, neuron_legacy, ngram"),
    ("draft_backend", "torch", "torch needs a model: set draft_model, too"),
    ("draft_slots", "2", "there is no draft model: set draft_model, too"),
    ("draft_device", "cuda:1", "there is no draft model: set draft_model, too"),
    ("draft_head", "/nowhere/h.gguf", "no such file: /nowhere/h.gguf"),
]


@pytest.mark.parametrize(("field", "value", "words"), BAD)
def test_error_for_a_bad_value_names_its_key(field: str, value: str, words: str) -> None:
    variable = PREFIX + field.upper()
    with pytest.raises(SettingsError) as by_environment:
        from_environment({variable: value})
    with pytest.raises(SettingsError) as by_flag:
        from_flags([flag(field), value], {})
    with pytest.raises(SettingsError) as by_both:
        from_flags(["--port", "0"], {variable: value})
    for caught, key in ((by_environment, variable), (by_flag, flag(field)), (by_both, variable)):
        message = str(caught.value)
        assert message.startswith(f"{key}: ")
        assert words in message
        assert "\n" not in message


WORKERS = "sessions and their KV caches live in one process"


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["uvicorn", "verifier_server.app:app", "--workers", "2"], {}),
        (["uvicorn", "verifier_server.app:app", "--workers=4"], {}),
        (["gunicorn", "-w", "3"], {}),
        (["uvicorn"], {"WEB_CONCURRENCY": "2"}),
        (["uvicorn"], {"UVICORN_WORKERS": "2"}),
    ],
)
def test_several_workers_are_refused(arguments: list[str], environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=WORKERS):
        refuse_workers(arguments, environment)


def test_a_model_by_name_stands_in_place_of_a_path() -> None:
    settings, _ = from_flags(["-hf", "u/r:Q8_0", "--draft-hf=u/small"], {})
    assert (settings.hf, settings.draft_hf, settings.drafts) == ("u/r:Q8_0", "u/small", True)
    for flags, message in (
        (["--hf=u/r", f"--model={DEFAULT_TARGET}"], "--hf: model names a model, too: leave one of the two out"),
        (["--draft-hf=u/r", f"--draft-model={DEFAULT_DRAFT}"], "--draft-hf: draft_model names a model, too"),
        (["--draft-hf=u/r", "--draft-backend=ngram"], "--draft-hf: ngram is a lookup in the text and takes no model"),
        (["-hf", "r"], "--hf: 'r' is not the name of a model: write user/repo or user/repo:tag"),
    ):
        with pytest.raises(SettingsError) as caught:
            from_flags(flags, {})
        assert str(caught.value).startswith(message)


OWN = {"default": "{{ messages[0].content }}", "tool_use": "{{ tools }}"}


def _backend() -> ScriptedBackend:
    backend = ScriptedBackend(Script(seed=1))
    backend.take_chat_templates(OWN)
    return backend


@pytest.mark.parametrize(("chosen", "template"), [(None, OWN["default"]), *OWN.items()])
def test_the_models_templates_are_chosen_by_name(chosen: str | None, template: str) -> None:
    backend = _backend()
    choose_chat_template(backend, chosen)
    assert backend.chat_template == template


def test_the_templates_of_a_gguf_file_have_names(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(TinyModel(tmp_path / "tiny"), path, OWN)
    assert read_gguf_vocabulary(path)[1] == OWN


def test_a_file_replaces_the_models_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{{ raise_exception('only assistants') }}")  # it refuses the message that it is tried with
    service = Service(settings(chat_template=str(file)), _backend())
    service.loader.start()
    assert service.loader.wait(30) and service.loader.failure is None
    assert service.engine.info.chat_template == file.read_text()
    service.stop()


def test_what_is_no_template_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% if")
    for chosen, complaint in (
        (str(file), r"mine\.jinja cannot be used"),
        (str(tmp_path), "cannot be read"),
        ("tool", "no such file; templates in the model's files: default, tool_use"),
    ):
        with pytest.raises(ModelLoadError, match=complaint) as raised:
            choose_chat_template(_backend(), chosen)
        assert raised.value.setting == "chat_template"
