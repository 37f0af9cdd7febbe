"""Render untrusted chat templates within limits of time, memory and size."""

import json
from collections.abc import Sequence
from typing import Any

from gateway.openai_api.chat.forms import Forms, Message
from specpair.child_processes.worker import Unanswered, Worker
from specpair.protocol.errors import InvalidRequest, NoChatTemplate
from specpair.protocol.terminal_text import one_line

MOST_TEMPLATE = 2**20  # characters; common templates have a few thousand
MOST_AROUND = 2**20  # characters that the result may have, beside four for each character of the variables
DEADLINE = 10.0  # seconds, including about 0.2 for the start of the child process
_CHILD = "gateway.openai_api.chat.template_child"


class Renderer:
    """Renders templates in a child process, which is kept for the next one. Thread-safe. Close it at the end."""

    def __init__(self) -> None:
        self._child = Worker(_CHILD)
        self._forms: dict[str, Forms] = {}  # of templates

    def close(self) -> None:
        """End the child process. A later `render` starts another one."""
        self._child.kill()

    def render(self, template: str, variables: dict[str, Any]) -> str:
        """Return a Jinja template rendered with `variables`. The child process is killed after `DEADLINE`.

        Raises NoChatTemplate if the template exceeds a limit or fails, and InvalidRequest if it refuses the messages.
        """
        answer = self._ask(template, variables)
        if "refused" in answer:
            raise InvalidRequest(
                f"messages: the chat template refuses them: {one_line(answer['refused'])}", param="messages"
            )
        if "error" in answer:
            raise _failed(one_line(answer["error"]))
        return _text(answer)

    def attempt(self, template: str, variables: dict[str, Any]) -> str | None:
        """Return the rendered template, or None if it fails or refuses. Raises NoChatTemplate if it exceeds a limit."""
        answer = self._ask(template, variables)
        return _text(answer) if "text" in answer else None

    def forms(self, template: str) -> Forms:
        """What a template takes. It is tried when that matters for the first time; see `attempt` for the errors."""
        if template not in self._forms:
            base = {"add_generation_prompt": True, "bos_token": "", "eos_token": ""}

            def attempt(messages: list[Message], tools: Sequence[Message]) -> str | None:
                return self.attempt(template, base | {"messages": messages} | ({"tools": [*tools]} if tools else {}))

            found = Forms(attempt)
            self._forms = {template: found}  # a service has one
        return self._forms[template]

    def _ask(self, template: str, variables: dict[str, Any]) -> dict[str, str]:
        """The child's answer. Raises NoChatTemplate if the template exceeds a limit of this process."""
        if len(template) > MOST_TEMPLATE:
            raise _failed(f"it has {len(template)} characters, at most {MOST_TEMPLATE} are taken")
        most = MOST_AROUND + 4 * len(json.dumps(variables))
        request = {"template": template, "variables": variables, "most": most}
        try:
            answer = self._child.ask(request, DEADLINE)
        except Unanswered as error:
            raise _failed(str(error)) from None
        if "exceeded" in answer:
            raise _failed(answer["exceeded"])
        return answer


def _text(answer: dict[str, str]) -> str:
    return answer["text"].encode(errors="replace").decode()  # a template can make half of a surrogate pair


def _failed(why: str) -> NoChatTemplate:
    return NoChatTemplate(f"the target's chat template cannot be rendered: {why}")
