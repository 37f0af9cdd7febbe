"""Generates from several prompts at once, in a program on asyncio.

    python examples/async_client.py http://127.0.0.1:8000 "def main():" "import os" "class Stack:"

The drafter is an n-gram lookup in each text, which needs no model. If the verifier has an API key, set the variable
KEY.
"""

import asyncio
import os
import sys

from drafter_client import AsyncPair, DrafterError, Finished, Lookup, Options, SpecPairError


async def write(pair: AsyncPair, prompt: str) -> Finished:
    """Generate one text. After a minute, raises TimeoutError, and the verifier deletes the session."""
    async with asyncio.timeout(60):
        return await pair.generate(prompt, Options(max_tokens=32)).read()


async def main(url: str, *prompts: str) -> int:
    """Generate a text for each prompt. Returns the exit status."""
    try:
        async with AsyncPair(url, Lookup(), texts=len(prompts), api_key=os.environ.get("KEY")) as pair:
            texts = await asyncio.gather(*(write(pair, prompt) for prompt in prompts))
    except (DrafterError, SpecPairError, TimeoutError) as error:
        print(f"async_client: {error or 'no text within a minute'}", file=sys.stderr)
        return 1
    for prompt, text in zip(prompts, texts, strict=True):
        print(f"== {prompt}{text.text}")
        print(f"-- {text.stats.accepted} of {text.stats.drafted} draft tokens accepted")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(
            'usage: async_client.py URL PROMPT [PROMPT ...], as in http://127.0.0.1:8000 "def main():"', file=sys.stderr
        )
        sys.exit(2)
    sys.exit(asyncio.run(main(*sys.argv[1:])))
