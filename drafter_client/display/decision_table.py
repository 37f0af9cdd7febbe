"""A table of the decisions on the tokens, one line each: token, draft token, their probabilities, the verdict."""

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.text import Text

from drafter_client.generation.generation import Token

_WIDEST = 14  # characters of a token
_HEAD = f"{'place':>5}  {'token':<{_WIDEST}} {'p':>6}  {'draft':<{_WIDEST}} {'p':>6} {'q':>6} {'drawn':>6}  verdict"
_SHOWN = {"own": "no draft"}  # "own" in the protocol: the target's token where no draft token was judged
_STYLES = {"accepted": "green", "rejected": "yellow", "own": "cyan"}


class DecisionTable:
    """Prints decisions as they come."""

    def __init__(self, piece: Callable[[int], str], out: Console) -> None:
        """`piece`: returns the text of a token id."""
        self._piece, self._out = piece, out
        self._begun = False

    def show(self, position: int, tokens: Iterable[Token]) -> None:
        """Print the decisions on `tokens`, which begin at `position`; tokens without a decision are left out."""
        for at, token in enumerate(tokens, position):
            if token.decision is not None:
                if not self._begun:
                    self._begun = True
                    self._out.print(Text(_HEAD, "dim"), soft_wrap=True)
                self._out.print(Text(self._line(at, token), _STYLES[token.decision.verdict]), soft_wrap=True)

    def _line(self, position: int, token: Token) -> str:
        why = token.decision
        assert why is not None
        draft = "-" if why.draft is None else self._shown(why.draft)
        numbers = " ".join(f"{_number(each):>6}" for each in (why.draft_p, why.q, why.drawn))
        return (
            f"{position:>5}  {self._shown(why.token):<{_WIDEST}} {_number(why.p):>6}  {draft:<{_WIDEST}} {numbers}  "
            f"{_SHOWN.get(why.verdict, why.verdict)}"
        )

    def _shown(self, token: int) -> str:
        text = ascii(self._piece(token))
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
