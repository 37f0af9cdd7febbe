"""Which chat template a verifier serves, as its setting chooses."""

from pathlib import Path

import pytest

from backends.llama_cpp.model import read_gguf_vocabulary
from backends.scripted import Script, ScriptedBackend
from backends.trial.tiny_gguf import write_tiny_gguf
from backends.trial.tiny_llama import TinyModel
from specpair.engines.errors import ModelLoadError
from tests.verifier_server.conftest import settings
from verifier_server.loading import choose_chat_template
from verifier_server.service import Service

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
