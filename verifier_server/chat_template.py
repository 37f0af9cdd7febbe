"""The chat template that the setting `chat_template` chooses: one of a file, or one of those in the model's files."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

from gateway.openai_api.chat.template import Renderer
from specpair.engines.errors import ModelLoadError
from specpair.protocol.errors import InvalidRequest, NoChatTemplate

_TRIED = {
    "messages": [{"role": "user", "content": "Hello"}],
    "add_generation_prompt": True,
    "bos_token": "",
    "eos_token": "",
}


class HasTemplates(Protocol):
    """An engine, or a model that is loaded for one."""

    chat_template: str | None  # the one that is served

    @property
    def chat_templates(self) -> Mapping[str, str]: ...


def choose_chat_template(backend: HasTemplates, chosen: str | None) -> None:
    """Have `backend` serve the template `chosen`, a path or a name; None: the model's usual one.

    Raises ModelLoadError if there is none, or if it cannot render a message.
    """
    if chosen is None:
        return
    template = backend.chat_templates.get(chosen)
    if template is None:
        template = _read(chosen, backend)
    try:
        with closing(Renderer()) as renderer:
            renderer.render(template, _TRIED)
    except InvalidRequest:
        pass  # it is well, and takes other messages
    except NoChatTemplate as error:
        raise _wrong(f"{chosen} cannot be used: {error}") from None
    backend.chat_template = template


def _read(path: str, backend: HasTemplates) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, ValueError, OSError) as error:
        named = ", ".join(sorted(backend.chat_templates)) or "none"
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise _wrong(f"{path}: {reason}; templates in the model's files: {named}") from None


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"chat_template: {reason}", "chat_template")
