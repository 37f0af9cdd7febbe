"""Generates a text with drafter and verifier, prints it as it comes, then its statistics.

    python examples/sync_client.py http://127.0.0.1:8000 "def main():"

The drafter is the draft model that ships with this project; `DraftModel(Path("….gguf"))` takes another one. If the
verifier has an API key, set the variable KEY.
"""

import os
import sys

from drafter_client import DrafterError, DraftModel, Options, Pair, SpecPairError, Tokens


def main(url: str, prompt: str) -> int:
    """Generate a text from `prompt`. Returns the exit status."""
    try:
        with Pair(url, DraftModel(), api_key=os.environ.get("KEY")) as pair:
            text = pair.generate(prompt, Options(max_tokens=48, temperature=0.8, seed=7))
            for event in text:
                if isinstance(event, Tokens):
                    print(event.text, end="", flush=True)
    except (DrafterError, SpecPairError) as error:
        print(f"sync_client: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsync_client: interrupted", file=sys.stderr)
        return 130
    stats = text.stats
    rate = f"{stats.tokens_per_second:.0f} tokens/s" if stats.tokens_per_second else "-"
    print(f"\n-- {stats.generated_tokens} tokens at {rate}, {stats.accepted} of {stats.drafted} draft tokens accepted")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print('usage: sync_client.py URL PROMPT, as in http://127.0.0.1:8000 "def main():"', file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
