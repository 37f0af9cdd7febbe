"""A drafter of one's own: it remembers what followed in texts of before, in place of a model.

    python examples/custom_drafter.py http://127.0.0.1:8000 "def main():"

The same prompt twice: the second time its drafts are right. KEY in the environment is the verifier's key, if it wants
one.
"""

import os
import sys
from collections.abc import Sequence

from drafter_client import Custom, DrafterError, Expansion, Options, Pair, Prediction, SpecPairError

CONTEXT = 3  # tokens that say what comes next


class Memory:
    """What followed each three tokens the last time."""

    width = 1  # continuations that it looks beyond at once

    def __init__(self) -> None:
        self._followed: dict[tuple[int, ...], int] = {}

    def learn(self, tokens: Sequence[int]) -> None:
        """Remember a text."""
        for at in range(CONTEXT, len(tokens)):
            self._followed[tuple(tokens[at - CONTEXT : at])] = tokens[at]

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """The token behind `text` and each of `tails`, with the chance that the target agrees."""
        return Expansion([self._predict([*text[-CONTEXT:], *tail]) for tail in tails], len(tails))

    def _predict(self, tokens: Sequence[int]) -> Prediction:
        token = self._followed.get(tuple(tokens[-CONTEXT:]))
        return Prediction(0, 0.0) if token is None else Prediction(token, 0.9)  # what is not believed is hardly sent


def main(url: str, prompt: str) -> int:
    """Exit status."""
    memory = Memory()
    try:
        with Pair(url, Custom(lambda vocabulary, sampling: memory, "memory"), api_key=os.environ.get("KEY")) as pair:
            for _ in range(2):
                text = pair.generate(prompt, Options(max_tokens=48, lookup=False, lockstep=True))
                stats = text.read().stats
                print(f"{stats.rounds} rounds, {stats.accepted} of {stats.drafted} drafts accepted")
                memory.learn([*text.prompt_ids, *stats.token_ids])
    except (DrafterError, SpecPairError) as error:
        print(f"custom_drafter: {error}", file=sys.stderr)
        return 1
    print(prompt + text.text)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print('usage: custom_drafter.py URL PROMPT, as in http://127.0.0.1:8000 "def main():"', file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
