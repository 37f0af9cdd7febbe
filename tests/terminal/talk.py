"""`drafter chat` in a terminal, as a user types."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.terminal.pseudo import Terminal, python, terminal
from tests.terminal.screen import Screen


class Talk:
    """A chat in a terminal."""

    def __init__(self, shown: Terminal, prompt: str) -> None:
        self.terminal, self._prompt, self._prompts = shown, prompt, 0

    def wait_for_prompt(self) -> None:
        self._prompts += 1
        self.terminal.wait_for(f"(?s)^(?:(?:(?!{self._prompt}).)*{self._prompt}){{{self._prompts}}}")

    def say(self, text: str) -> None:
        """Type a turn, and wait for what it brings."""
        self.terminal.type(text + "\r")
        self.wait_for_prompt()

    def leave(self) -> list[str]:
        """Ctrl-D. Returns the lines of the screen."""
        self.terminal.type("\x04")
        assert self.terminal.wait() == 0, self.terminal.text
        self.terminal.wait_until_alone()
        screen = Screen(80)
        screen.feed(self.terminal.raw)
        return screen.lines


@contextmanager
def chatting(url: str, *flags: str, **variables: str) -> Iterator[Talk]:
    command = ["chat", "--verifier", url, "--mode", "target", "--max-tokens", "2000", *flags]
    prompt = "\n> " if variables.get("TERM") == "dumb" else ">\x08"
    with terminal(python("-m", "drafter_client", *command), 80, **variables) as shown:
        talk = Talk(shown, prompt)
        talk.wait_for_prompt()
        yield talk
