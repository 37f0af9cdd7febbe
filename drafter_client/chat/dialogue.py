"""The messages of a chat, in files and as immutable values, so that a failed answer loses nothing."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from drafter_client.errors import DrafterError
from specpair.protocol.terminal_text import is_text, one_line
from specpair.shared_files import replacing

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
_OF_SYSTEM = (SYSTEM, "developer")  # the second is OpenAI's newer name
_THOUGHTS = "reasoning_content"


class BadChat(DrafterError):
    """A file of messages cannot be read or written, or a command does not apply to the messages."""


class DialogueMessage(NamedTuple):
    """One message with its role, user or assistant. `thoughts`: those before an answer."""

    role: str
    content: str
    thoughts: str = ""

    def message(self) -> dict[str, Any]:
        """The message in OpenAI's form. Templates may leave out thoughts of earlier answers."""
        message = {"role": self.role, "content": self.content}
        return message | {_THOUGHTS: self.thoughts} if self.thoughts else message


@dataclass(frozen=True)
class Dialogue:
    """A system message and the messages after it. The user's last one may be unanswered."""

    system: str | None = None
    said: tuple[DialogueMessage, ...] = ()

    @property
    def unanswered(self) -> bool:
        return bool(self.said) and self.said[-1].role == USER

    def asked(self, question: str) -> "Dialogue":
        """The dialogue with a question, which replaces an unanswered one."""
        before = self.said[:-1] if self.unanswered else self.said
        return replace(self, said=(*before, DialogueMessage(USER, question)))

    def answered(self, answer: str, thoughts: str = "") -> "Dialogue":
        return replace(self, said=(*self.said, DialogueMessage(ASSISTANT, answer, thoughts)))

    def asked_again(self) -> "Dialogue":
        """The dialogue without its last answer. Raises BadChat if there is no question."""
        said = self.said if self.unanswered else self.said[:-1]
        if not said or said[-1].role != USER:
            raise BadChat("no question was asked yet: ask one first")
        return replace(self, said=said)

    def messages(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's form, the system message first."""
        system = [] if self.system is None else [DialogueMessage(SYSTEM, self.system)]
        return [each.message() for each in (*system, *self.said)]

    def save(self, path: Path) -> None:
        """Write the messages to a file as JSON: `{"messages": […]}`. Raises BadChat if that fails, or if the file holds
        something else than messages; it then stays as it was."""
        if path.exists():
            try:
                Dialogue.load(path)
            except BadChat as other:
                raise BadChat(f"{other}. It is left as it is: choose another name") from None
        text = json.dumps({"messages": self.messages()}, ensure_ascii=False, indent=1)
        try:
            with replacing(path) as file:
                file.write(text.encode() + b"\n")
        except OSError as error:
            raise BadChat(f"{path} cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: Path) -> "Dialogue":
        """The messages in a file: what `save` writes, or a list of messages alone. Raises BadChat."""
        try:
            given = json.loads(path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise BadChat(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadChat(f"{path} is not UTF-8 text") from None
        except (ValueError, RecursionError) as error:
            raise BadChat(f"{path} is not JSON: {error}") from None
        messages = given.get("messages") if isinstance(given, dict) else given
        if not isinstance(messages, list):
            raise BadChat(f'{path} holds no messages: it must be {{"messages": […]}} or a list of messages')
        said = [_said(each, f"{path}: message {number}") for number, each in enumerate(messages, 1)]
        system = said.pop(0).content if said and said[0].role == SYSTEM else None
        for at, each in enumerate(said):
            expected = ASSISTANT if at % 2 else USER
            if each.role != expected:
                number = at + (1 if system is None else 2)
                raise BadChat(f"{path}: message {number} has the role {each.role}, expected {expected}")
        return cls(system, tuple(said))


def _said(message: Any, where: str) -> DialogueMessage:
    if not isinstance(message, dict):
        raise BadChat(f"{where} is no object with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in (USER, ASSISTANT, *_OF_SYSTEM):
        known = f"{SYSTEM}, {USER} or {ASSISTANT}"
        raise BadChat(f"{where}: the role must be {known}, got {one_line(json.dumps(role, ensure_ascii=False))[:80]}")
    if not isinstance(content, str) or not is_text(content):
        raise BadChat(f"{where}: the content must be text")
    if role in _OF_SYSTEM:
        return DialogueMessage(SYSTEM, content)
    thoughts = message.get(_THOUGHTS) or "" if role == ASSISTANT else ""
    if not isinstance(thoughts, str) or not is_text(thoughts):
        raise BadChat(f"{where}: {_THOUGHTS} must be text")
    return DialogueMessage(role, content, thoughts)
