"""Several prompts at once, for a program on asyncio.

    python examples/async_client.py http://127.0.0.1:8000 "def main():" "import os" "class Stack:"

What drafts here is a lookup in each text, which needs no model. KEY in the environment is the verifier's key, if it
wants one.
"""

import asyncio
import os
import sys

from drafter_client import AsyncPair, DrafterError, Finished, Lookup, Options, SpecPairError


async def write(pair: AsyncPair, prompt: str) -> Finished:
    """One text; ends with an error after a minute, and the verifier forgets it."""
    async with asyncio.timeout(60):
        return await pair.generate(prompt, Options(max_tokens=32)).read()


async def main(url: str, *prompts: str) -> int:
    """Exit status."""
    try:
        async with AsyncPair(url, Lookup(), texts=len(prompts), api_key=os.environ.get("KEY")) as pair:
            texts = await asyncio.gather(*(write(pair, prompt) for prompt in prompts))
    except (DrafterError, SpecPairError, TimeoutError) as error:
        print(f"async_client: {error or 'no text within a minute'}", file=sys.stderr)
        return 1
    for prompt, text in zip(prompts, texts, strict=True):
        print(f"== {prompt}{text.text}")
        print(f"-- {text.stats.accepted} of {text.stats.drafted} drafts accepted")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(
            'usage: async_client.py URL PROMPT [PROMPT ...], as in http://127.0.0.1:8000 "def main():"', file=sys.stderr
        )
        sys.exit(2)
    sys.exit(asyncio.run(main(*sys.argv[1:])))
