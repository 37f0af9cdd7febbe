"""The parts of a chat prompt: the target's chat template around messages that cannot forge control tokens."""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from gateway.openai_api.chat.template import Renderer, TemplateMessage
from specpair.engines.vocabulary import Kind, PromptSpan, Vocabulary
from specpair.protocol.errors import InvalidRequest


class _Span(NamedTuple):
    """A control token, or text without any. `spelled`: a message spells it out."""

    text: str
    token: bool = False
    spelled: bool = False


class Marks:
    """Secret marks around control tokens: digits only, which no filter of a template changes.

    A marked token can still be found, so that a template splits a message there.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """`vocabulary`: its control tokens are marked."""
        secret = f"{secrets.randbelow(10**18):018}"
        self._open, self._close = f"1{secret}", f"2{secret}"
        self._token = _control_tokens(vocabulary)

    def marked(self, value: Any) -> Any:
        """A value of JSON with marks around the control tokens in all its strings."""
        if isinstance(value, str):
            return self._token.sub(rf"{self._open}\g<0>{self._close}", value)
        if isinstance(value, dict):
            return {self.marked(name): self.marked(each) for name, each in value.items()}
        if isinstance(value, list):
            marked = [self.marked(each) for each in value]
            return [marked[0], *map(self._cut, marked[1:])] if self._across(value) else marked
        return value

    def moved(self, marked: str, plain: str) -> str:
        """Transfer the marks of a rendered template to the template rendered without marks.

        A mark can keep a template from trimming. If the control tokens are not the same in both, `marked` stays.
        """
        tokens = [each for each in self._scanned(marked) if each.token and each.text]
        if [each.text for each in tokens] != self._token.findall(plain):
            return marked
        found = iter(tokens)
        return self._token.sub(lambda token: self.marked(token[0]) if next(found).spelled else token[0], plain)

    def parts(self, text: str) -> list[PromptSpan]:
        """A rendered template without its marks, cut between control tokens of the template and spelled ones.

        Text between two tokens of the template stays whole, so that it has the same ids as without marks.
        """
        parts: list[PromptSpan] = []
        meant, stretch, spelled = "", "", False  # `stretch`: since a token of the template; `meant`: before it
        for each in self._scanned(text):
            if each.spelled or not each.token:
                stretch, spelled = stretch + each.text, spelled or each.spelled
                continue
            if spelled:
                parts += [PromptSpan(meant, True), PromptSpan(stretch, False)]
                meant, stretch, spelled = "", "", False
            meant, stretch = meant + stretch + each.text, ""
        parts += (
            [PromptSpan(meant, True), PromptSpan(stretch, False)] if spelled else [PromptSpan(meant + stretch, True)]
        )
        return [part for part in parts if part.text]

    def _scanned(self, marked: str) -> Iterator[_Span]:
        """The spans of a marked text. A mark that lost its token is an empty span that a message spells out."""
        texts = re.split(f"({self._open}|{self._close})", marked)  # each second one is a mark
        for at in range(0, len(texts), 2):
            text, around = texts[at], (texts[at - 1 : at], texts[at + 1 : at + 2])
            if around == ([self._open], [self._close]) and self._token.fullmatch(text):
                yield _Span(text, token=True, spelled=True)
                continue
            if at:
                yield _Span("", token=False, spelled=True)
            end = 0
            for found in self._token.finditer(text):
                yield _Span(text[end : found.start()])
                yield _Span(found[0], token=True)
                end = found.end()
            yield _Span(text[end:])

    def _across(self, value: list[Any]) -> bool:
        """Whether a control token begins in one part of a content and ends in another."""
        texts = [str(each["text"]) for each in value if isinstance(each, dict) and "text" in each]
        return self._token.sub("", "".join(texts)) != "".join(self._token.sub("", text) for text in texts)

    def _cut(self, part: Any) -> Any:
        """Close a marked part of a content, so that it completes no earlier part's token."""
        return part | {"text": self._close + part["text"]} if isinstance(part, dict) and "text" in part else part


@lru_cache(maxsize=8)
def _control_tokens(vocabulary: Vocabulary) -> re.Pattern[str]:
    """A pattern of control and unused tokens' names. Cached, since a vocabulary has a hundred thousand ids."""
    pieces = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    names = {piece.decode(errors="replace") for piece, kind in pieces if kind != Kind.ORDINARY and piece}
    return re.compile(_any_of(names) if names else "(?!)")


def _any_of(names: Iterable[str]) -> str:
    """A pattern of the longest of these names. Their beginnings are shared: some models have thousands of names."""
    ordered = sorted(names)
    prefix = "".join(
        left for left, right in takewhile(lambda pair: pair[0] == pair[1], zip(ordered[0], ordered[-1], strict=False))
    )
    rests = groupby((name[len(prefix) :] for name in ordered), lambda rest: rest[:1])
    branches = [first and _any_of([*group]) for first, group in rests]
    longer = "|".join(filter(None, branches))
    return re.escape(prefix) + (f"(?:{longer})" if longer else "") + ("?" if longer and "" in branches else "")


_SYSTEM_BEHIND = "the role 'system' is not supported behind other messages"


def chat_parts(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[TemplateMessage],
    renderer: Renderer,
    variables: Mapping[str, Any] | None = None,
    *,
    calls: bool = True,
) -> list[PromptSpan]:
    """Return a conversation as text, up to where the assistant's answer begins. Nothing is encoded yet.

    Control tokens that messages spell out stand in parts that are plain text, so that they cannot forge one.
    `template`: the target's, in Jinja.
    `vocabulary`: the target's.
    `variables`: others for the template.
    `calls`: whether tools that are among these may be called.

    Raises NoChatTemplate if the template cannot be rendered, and InvalidRequest if it refuses the messages or does not
    show tools that may be called, or the content of a message.
    """
    ours = {
        "add_generation_prompt": True,
        "bos_token": vocabulary.spelled(vocabulary.begin),
        "eos_token": vocabulary.spelled(vocabulary.end),
    }
    forms = renderer.forms(template)
    if calls and (variables or {}).get("tools") and not forms.shows_tools:
        raise InvalidRequest(
            "tools: the chat template of this model does not show any, so that it cannot call them: leave them out, or "
            "serve a model that calls tools",
            param="tools",
        )
    given = {**(variables or {}), "messages": forms.fitted(messages)}
    text = _rendered(template, given | ours, renderer)
    _check_shown(template, given | ours, renderer)
    marks = Marks(vocabulary)
    if (marked := marks.marked(given)) != given:
        text = marks.moved(renderer.render(template, marked | ours), text)
    return marks.parts(text)


def _rendered(template: str, variables: Mapping[str, Any], renderer: Renderer) -> str:
    """The rendered template. The error of a refused system message behind others says so: Claude Code then sends it
    as a user's message."""
    try:
        return renderer.render(template, {**variables})
    except InvalidRequest as error:
        messages: list[TemplateMessage] = variables["messages"]
        others = [each for at, each in enumerate(messages) if at == 0 or each["role"] != "system"]
        if len(others) == len(messages) or renderer.attempt(template, {**variables, "messages": others}) is None:
            raise
        raise InvalidRequest(f"{error.message}; {_SYSTEM_BEHIND}", param="messages") from None


def _check_shown(template: str, variables: Mapping[str, Any], renderer: Renderer) -> None:
    """Raise InvalidRequest if the template does not show the content of a message.

    A template may trim a content, escape it or leave its thoughts out. So it is rendered again, with a number at the
    end of each content, which nobody can guess and which has to be shown.
    """
    messages: list[TemplateMessage] = variables["messages"]
    secret = f"3{secrets.randbelow(10**18):018}"
    owners: list[int] = []  # of the numbers

    def numbered(content: Any, at: int) -> Any:
        if isinstance(content, list):
            return [part | {"text": numbered(part["text"], at)} for part in content]
        if not content or content.isspace():
            return content
        owners.append(at)
        kept = content.rstrip()
        return f"{kept}{secret}{len(owners) - 1:08}{content[len(kept) :]}"

    said = [message | {"content": numbered(message["content"], at)} for at, message in enumerate(messages)]
    text = renderer.attempt(template, {**variables, "messages": said})
    if text is None:  # it takes certain contents only, and has shown them
        return
    shown = {int(number) for number in re.findall(secret + r"(\d{8})", text)}
    if (lost := next((at for number, at in enumerate(owners) if number not in shown), None)) is not None:
        role = messages[lost]["role"]
        behind = f"; {_SYSTEM_BEHIND}" if role == "system" and lost > 0 else ""
        raise InvalidRequest(
            f"messages.{lost}: the chat template of this model does not show the content of this {role} message: leave "
            f"it out, or say it in another message{behind}",
            param=f"messages.{lost}",
        )
