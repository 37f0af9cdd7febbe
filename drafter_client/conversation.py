"""Conversations as prompts: messages in the target's chat template."""

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

from gateway.openai_api.chat.prompt import chat_parts
from gateway.openai_api.chat.template import Renderer
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.errors import NoChatTemplate

Messages = Sequence[Mapping[str, Any]]  # in OpenAI's form: `role` and `content`, and what else the template knows


def conversation(said: str | Messages, system: str | None = None) -> list[dict[str, Any]]:
    """The system message, if there is one, then the messages of `said`, or `said` as the user's message."""
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else [dict(each) for each in said]
    return messages if system is None else [{"role": "system", "content": system}, *messages]


def chat_ids(
    template: str | None, vocabulary: Vocabulary, messages: Messages, renderer: Renderer | None = None
) -> list[int]:
    """The token ids of a conversation in the model's template (Jinja), up to where the assistant's answer begins.

    `renderer`: None: one of its own, whose process takes 0.2 s to start.

    Raises NoChatTemplate, and InvalidRequest for messages that the template refuses.
    """
    if not template:
        raise NoChatTemplate("the target model has no chat template: leave --chat out, or serve an instruct model")
    with nullcontext(renderer) if renderer is not None else closing(Renderer()) as used:
        parts = chat_parts(template, vocabulary, [dict(each) for each in messages], used)
    return vocabulary.encode_parts(parts)
