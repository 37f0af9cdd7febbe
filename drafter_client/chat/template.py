"""Render an untrusted chat template within limits of time, memory and size."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from drafter_client.errors import NoChatTemplate
from speculation.terminal_text import one_line

MOST_TEMPLATE = 2**20  # characters; common templates have a few thousand
MOST_AROUND = 2**20  # characters that the result may have, beside four for each character of the variables
DEADLINE = 10.0  # seconds, including about 0.2 for the start of the child process
_CHILD = Path(__file__).with_name("template_child.py")


def render(template: str, variables: dict[str, Any]) -> str:
    """Return a Jinja template rendered with `variables`, in a child process that is killed after `DEADLINE`.

    Raises NoChatTemplate if the template exceeds a limit or fails.
    """
    if len(template) > MOST_TEMPLATE:
        raise _failed(f"it has {len(template)} characters, at most {MOST_TEMPLATE} are taken")
    given = json.dumps(variables)
    request = json.dumps({"template": template, "variables": variables, "most": MOST_AROUND + 4 * len(given)})
    command = [sys.executable, "-P", str(_CHILD)]  # -P: modules in this folder must not shadow others
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
