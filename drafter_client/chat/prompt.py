"""Token ids of a chat prompt: the target's chat template around messages that cannot forge control tokens."""

from backends.vocabulary import Kind, Vocabulary
from drafter_client.chat.template import render
from drafter_client.errors import NoChatTemplate

_MARK = "\ue000{}\ue001"  # private-use characters that replace a message while the template is rendered


def chat_ids(template: str | None, vocabulary: Vocabulary, user: str, system: str | None = None) -> list[int]:
    """Return the token ids of a conversation with one user message, up to where the assistant's answer begins.

    If a message spells out a control token, the messages are encoded separately, as plain text, so that they cannot
    forge one. `template`: the target's, in Jinja; `vocabulary`: the target's; `system`: the system message, if any.
    Raises NoChatTemplate if there is no template, or if it cannot be rendered.
    """
    if not template:
        raise NoChatTemplate("the target model has no chat template: leave --chat away, or serve an instruct model")
    messages = {"user": user} if system is None else {"system": system, "user": user}
    if not any(_spells_control(vocabulary, content) for content in messages.values()):
        return vocabulary.encode(_render(template, vocabulary, messages), parse_control=True)
    rest = _render(template, vocabulary, {role: _MARK.format(role) for role in messages})
    ids: list[int] = []
    for at, (role, content) in enumerate(messages.items()):
        before, found, rest = rest.partition(_MARK.format(role))
        if not found:
            raise NoChatTemplate(f"the chat template does not show the {role} message as it is")
        ids += vocabulary.encode(before, add_begin=at == 0, parse_control=True)
        ids += vocabulary.encode(content, add_begin=False)
    return ids + vocabulary.encode(rest, add_begin=False, parse_control=True)


def _render(template: str, vocabulary: Vocabulary, messages: dict[str, str]) -> str:
    begin = _piece(vocabulary, vocabulary.begin)
    text = render(
        template,
        {
            "messages": [{"role": role, "content": content} for role, content in messages.items()],
            "add_generation_prompt": True,
            "bos_token": begin,
            "eos_token": _piece(vocabulary, min(vocabulary.ends, default=None)),
        },
    )
    encoding_adds_it = vocabulary.begin is not None and vocabulary.encode("a")[:1] == [vocabulary.begin]
    return text.removeprefix(begin) if encoding_adds_it else text


def _piece(vocabulary: Vocabulary, token: int | None) -> str:
    return "" if token is None else vocabulary.pieces[token].decode(errors="replace")


def _spells_control(vocabulary: Vocabulary, text: str) -> bool:
    data = text.encode(errors="replace")
    pieces = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    return any(kind == Kind.CONTROL and piece and piece in data for piece, kind in pieces)
