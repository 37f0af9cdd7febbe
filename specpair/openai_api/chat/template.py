"""Render untrusted chat templates within limits of time, memory and size."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from specpair.openai_api.chat.forms import Forms, Message
from specpair.protocol.errors import InvalidRequest, NoChatTemplate
from specpair.protocol.terminal_text import one_line

MOST_TEMPLATE = 2**20  # characters; common templates have a few thousand
MOST_AROUND = 2**20  # characters that the result may have, beside four for each character of the variables
DEADLINE = 10.0  # seconds, including about 0.2 for the start of the child process
_CHILD = Path(__file__).with_name("template_child.py")


class Renderer:
    """Renders templates in a child process, which is kept for the next one. Thread-safe. Close it at the end."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._forms: dict[str, Forms] = {}  # of templates

    def close(self) -> None:
        """End the child process. A later `render` starts another one."""
        with self._lock:
            self._end()

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
        request = json.dumps({"template": template, "variables": variables, "most": most})
        with self._lock:
            answer = self._answer(request.encode() + b"\n")
        if "exceeded" in answer:
            raise _failed(answer["exceeded"])
        return answer

    def _answer(self, request: bytes) -> dict[str, str]:
        if self._child is None:
            command = [sys.executable, "-P", str(_CHILD)]  # -P: modules in this folder must not shadow others
            pipe = subprocess.PIPE
            # A process group of its own: Ctrl-C in the terminal is meant for this process.
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, process_group=0)
        child, late = self._child, threading.Event()
        assert child.stdin is not None and child.stdout is not None

        def kill() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(DEADLINE, kill)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(request)
            child.stdin.flush()
            line = child.stdout.readline()
            answer: dict[str, str] = json.loads(line)
        except (OSError, ValueError):  # the child has ended
            status = self._end()
            raise _failed(f"it takes longer than {DEADLINE:g} s" if late.is_set() else _ending(status)) from None
        except BaseException:  # Ctrl-C: the answer would be taken for the next one's
            child.kill()
            self._end()
            raise
        finally:
            timer.cancel()
        return answer

    def _end(self) -> int:
        """End the child process, if there is one; return its exit status."""
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None and child.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already, with a request unread
            child.stdin.close()  # the child's loop over its lines ends
        try:
            return child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
        finally:
            child.stdout.close()


def _text(answer: dict[str, str]) -> str:
    return answer["text"].encode(errors="replace").decode()  # a template can make half of a surrogate pair


def _failed(why: str) -> NoChatTemplate:
    return NoChatTemplate(f"the target's chat template cannot be rendered: {why}")


def _ending(status: int) -> str:
    if status < 0:
        return f"the process that renders it was ended by {signal.Signals(-status).name}"
    return f"the process that renders it ended with status {status}"
