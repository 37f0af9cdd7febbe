"""A minimal client: two endpoints, no session id, nothing to install.

    python examples/simple_client.py http://127.0.0.1:8000 "def main():"

It posts {"prompt": …} to /prefill/ and {"draft_tokens": …} to /verify/, and appends the drafts that were accepted or,
if none was, the target's token `preds[0]`. Its drafts need no model: it drafts what followed the last token before.

Such a loop works for one program at a time on one machine, and cannot recover from a lost reply. `drafter_client` has
neither limit, since it sends a session id and a position.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

DRAFTS = 4  # draft tokens in a request, at most

# Connects directly, even if the environment names a proxy.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_headers = {"Content-Type": "application/json"}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request. Returns the JSON reply."""
    request = urllib.request.Request(url, json.dumps(body).encode(), _headers)
    with _opener.open(request, timeout=600) as reply:
        content: dict[str, Any] = json.load(reply)
        return content


def draft(seen: list[int]) -> list[int]:
    """Up to DRAFTS tokens that followed the most recent earlier occurrence of the last token."""
    for at in range(len(seen) - 2, -1, -1):
        if seen[at] == seen[-1]:
            return seen[at + 1 : at + 1 + DRAFTS]
    return []


def generate(url: str, prompt: str, max_tokens: int) -> tuple[list[int], int, int]:
    """Generate a text. Returns its token ids, the number of verify requests and that of accepted draft tokens."""
    prompt_ids: list[int] = post(f"{url}/prefill/", {"prompt": prompt})["prompt_ids"]
    tokens: list[int] = []
    requests = total_accepted = 0
    while len(tokens) < max_tokens:
        drafts = draft(prompt_ids + tokens)
        reply = post(f"{url}/verify/", {"draft_tokens": drafts})
        accepted, preds = reply["accepted_prefix_len"], reply["preds"]
        requests, total_accepted = requests + 1, total_accepted + accepted
        if reply["finish_reason"] is not None:  # the text is complete, and `preds` are its last tokens
            tokens += preds
            break
        tokens += drafts[:accepted] or preds[:1]
    return tokens[:max_tokens], requests, total_accepted


def main() -> int:
    """Generate a text and compare it with the text of the target alone. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Speculative decoding in a few lines.")
    parser.usage = "simple_client.py URL PROMPT [--max-tokens N] [--api-key KEY]"
    parser.add_argument("url", help="the verifier, for example http://127.0.0.1:8000")
    parser.add_argument("prompt", help="the text to continue")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--api-key", default=os.environ.get("KEY"), help="the verifier's key (default: variable KEY)")
    options = parser.parse_args()
    if options.api_key:
        _headers["Authorization"] = f"Bearer {options.api_key}"
    url = options.url.rstrip("/")
    try:
        tokens, requests, accepted = generate(url, options.prompt, options.max_tokens)
        alone = post(f"{url}/generate", {"prompt": options.prompt, "max_tokens": options.max_tokens})
    except urllib.error.HTTPError as error:
        print(f"simple_client: {error.read().decode(errors='replace').strip()}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"simple_client: no verifier at {url}: {error}", file=sys.stderr)
        return 1
    print("token ids:", *tokens)
    print(f"{len(tokens)} tokens in {requests} requests, {accepted} draft tokens accepted")
    if tokens != alone["token_ids"]:
        print("the target alone generates another text")  # possible after a near-tie of two tokens: see the README
        return 1
    print(f"the target alone generates the same text:\n{options.prompt}{alone['text']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
