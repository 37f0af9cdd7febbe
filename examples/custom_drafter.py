"""A custom drafter without a model: drafts the tokens that followed the same tokens in earlier texts.

    python examples/custom_drafter.py http://127.0.0.1:8000 "def main():"

Generates from the same prompt twice. The second time, the drafts are right. If the verifier has an API key, set the
variable KEY.
"""

import os
import sys
from collections.abc import Sequence

from drafter_client import Custom, DrafterError, Expansion, Options, Pair, Proposal, SpecPairError

CONTEXT = 3  # tokens from which the next one is predicted


class Memory:
    """A drafter that stores which token most recently followed each sequence of `CONTEXT` tokens."""

    width = 1  # the most `tails` in one call of `expand`

    def __init__(self) -> None:
        self._followed: dict[tuple[int, ...], int] = {}

    def learn(self, tokens: Sequence[int]) -> None:
        """Store the tokens of a text."""
        for at in range(CONTEXT, len(tokens)):
            self._followed[tuple(tokens[at - CONTEXT : at])] = tokens[at]

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """Predict the token after `text` plus each of `tails`, with its probability."""
        return Expansion([self._predict([*text[-CONTEXT:], *tail]) for tail in tails], len(tails))

    def _predict(self, tokens: Sequence[int]) -> Proposal:
        token = self._followed.get(tuple(tokens[-CONTEXT:]))
        return Proposal(0, 0.0) if token is None else Proposal(token, 0.9)  # at 0.0, it is hardly ever sent


def main(url: str, prompt: str) -> int:
    """Generate the same text twice. Returns the exit status."""
    memory = Memory()
    try:
        with Pair(url, Custom(lambda vocabulary, sampling: memory, "memory"), api_key=os.environ.get("KEY")) as pair:
            for _ in range(2):
                text = pair.generate(prompt, Options(max_tokens=48, lookup=False, lockstep=True))
                stats = text.read().stats
                print(f"{stats.rounds} rounds, {stats.accepted} of {stats.drafted} draft tokens accepted")
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
