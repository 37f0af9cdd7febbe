"""A chat template that somebody else wrote, rendered within bounds of time, memory and size."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from drafter_client.errors import NoChatTemplate
from speculation.terminal_text import one_line

MOST_TEMPLATE = 2**20  # characters; those in use have some thousands
MOST_AROUND = 2**20  # characters that a template may write around the messages
DEADLINE = 10.0  # seconds, of which the child's start takes some 0.2
_CHILD = Path(__file__).with_name("template_child.py")


def render(template: str, variables: dict[str, Any]) -> str:
    """The text of a Jinja template. It runs in a child process, which is killed when it takes too long.

    Raises NoChatTemplate.
    """
    if len(template) > MOST_TEMPLATE:
        raise _failed(f"it has {len(template)} characters, at most {MOST_TEMPLATE} are taken")
    given = json.dumps(variables)
    request = json.dumps({"template": template, "variables": variables, "most": MOST_AROUND + 4 * len(given)})
    command = [sys.executable, "-P", str(_CHILD)]  # -P: modules of this folder stand in nobody's way
    try:
        ran = subprocess.run(command, input=request.encode(), capture_output=True, timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        raise _failed(f"it takes longer than {DEADLINE:g} s") from None
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        raise _failed(_ending(ran.returncode)) from None
    if "error" in answer:
        raise _failed(one_line(answer["error"]))
    text: str = answer["text"]
    return text


def _failed(why: str) -> NoChatTemplate:
    return NoChatTemplate(f"the target's chat template cannot be rendered: {why}")


def _ending(status: int) -> str:
    if status < 0:
        return f"the process that renders it was ended by {signal.Signals(-status).name}"
    return f"the process that renders it ended with status {status}"
