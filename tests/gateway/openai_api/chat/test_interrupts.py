"""Ctrl-C while a chat template is rendered: the next rendering is its own."""

import os
import signal
import sys
import threading
from contextlib import closing

import pytest

from gateway.openai_api.chat.template import Renderer

LOOP = "{% for a in range(9999) %}"
ENDLESS = 3 * LOOP + 3 * "{% endfor %}"


@pytest.mark.skipif(sys.platform == "win32", reason="process groups as on POSIX")
def test_an_interrupted_rendering_leaves_nothing_to_the_next() -> None:
    with closing(Renderer()) as renderer:
        assert renderer.render("{{ x }}", {"x": "first"}) == "first"
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))

        def render() -> None:
            timer.start()
            renderer.render(ENDLESS, {})

        with pytest.raises(KeyboardInterrupt):
            render()
        timer.join()
        assert renderer.render("{{ x }}", {"x": "second"}) == "second"
