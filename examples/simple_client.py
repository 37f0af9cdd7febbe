"""The smallest client there can be: two endpoints, two keys, no session id, nothing to install.

    python examples/simple_client.py http://127.0.0.1:8000 "def main():"

It posts {"prompt": …} to /prefill/ and {"draft_tokens": …} to /verify/, and appends the drafts that were accepted or,
where none was, the target's own token `preds[0]`. Its guesses need no model: what followed the last time.

Such a loop is for one program at a time on one machine, and a lost reply loses its place. `drafter_client` has neither
limit: it sends a session id and a position along.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

DRAFTS = 4  # tokens guessed at once

# Straight to the verifier, whatever proxies the environment names.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_headers = {"Content-Type": "application/json"}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """One request, one JSON answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), _headers)
    with _opener.open(request, timeout=600) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def guess(seen: list[int]) -> list[int]:
    """The tokens that followed the last earlier occurrence of the latest token."""
    for at in range(len(seen) - 2, -1, -1):
        if seen[at] == seen[-1]:
            return seen[at + 1 : at + 1 + DRAFTS]
    return []


def generate(url: str, prompt: str, max_tokens: int) -> tuple[list[int], int, int]:
    """Ids of the generated text, the number of requests it took, and how many of the ids were guessed."""
    prompt_ids: list[int] = post(f"{url}/prefill/", {"prompt": prompt})["prompt_ids"]
    tokens: list[int] = []
    requests = guessed = 0
    while len(tokens) < max_tokens:
        drafts = guess(prompt_ids + tokens)
        reply = post(f"{url}/verify/", {"draft_tokens": drafts})
        accepted, preds = reply["accepted_prefix_len"], reply["preds"]
        requests, guessed = requests + 1, guessed + accepted
        if reply["finish_reason"] is not None:  # the text is whole, and these are the last of it
            tokens += preds
            break
        tokens += drafts[:accepted] or preds[:1]
    return tokens[:max_tokens], requests, guessed


def main() -> int:
    """Generate, and compare with what the target says by itself."""
    parser = argparse.ArgumentParser(description="Speculative decoding in a few lines.")
    parser.usage = "simple_client.py URL PROMPT [--max-tokens N] [--api-key KEY]"
    parser.add_argument("url", help="the verifier, for example http://127.0.0.1:8000")
    parser.add_argument("prompt", help="the text to continue")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--api-key", default=os.environ.get("KEY"), help="its key, if it wants one (or KEY)")
    options = parser.parse_args()
    if options.api_key:
        _headers["Authorization"] = f"Bearer {options.api_key}"
    url = options.url.rstrip("/")
    try:
        tokens, requests, guessed = generate(url, options.prompt, options.max_tokens)
        alone = post(f"{url}/generate", {"prompt": options.prompt, "max_tokens": options.max_tokens})
    except urllib.error.HTTPError as error:
        print(f"simple_client: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"simple_client: no verifier at {url}: {error}", file=sys.stderr)
        return 1
    print("token ids:", *tokens)
    print(f"{len(tokens)} tokens in {requests} requests, {guessed} of them guessed right")
    if tokens != alone["token_ids"]:
        print("the target alone says something else")  # possible after a near-tie of two tokens: see the README
        return 1
    print(f"the target alone says the same:\n{options.prompt}{alone['text']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
