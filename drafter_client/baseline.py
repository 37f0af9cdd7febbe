"""The measured baseline: the target alone, decoded on the same server, streamed to this client."""

from collections.abc import Callable
from typing import Any

from drafter_client.client import VerifierClient
from drafter_client.errors import BadReply
from drafter_client.stats import Baseline


def run_baseline(
    client: VerifierClient,
    prompt_ids: list[int],
    options: dict[str, Any],
    expected: list[int],
    clock: Callable[[], float],
) -> Baseline:
    """Generate with the target alone. `options` must name the seed; `expected` is the text to compare with."""
    most, streamed = options.get("max_tokens"), 0
    began = clock()
    first: float | None = None
    for name, data in client.generate(prompt_ids, options):
        if first is None:
            first = clock()
        event = client.fields("/generate", data)
        if name == "end":
            seconds = clock() - began
            tokens = event.ids("token_ids")
            return Baseline(
                tokens_per_second=round(len(tokens) / seconds, 2),
                ttft_ms=round(1e3 * (first - began), 2),
                generated_tokens=len(tokens),
                same_tokens=tokens == expected,
            )
        streamed += len(event.ids("tokens"))
        if most is not None and streamed > most:  # or a stream without an end would be read for ever
            raise event.wrong("tokens", f"are {streamed} so far, and {most} were asked for")
    raise BadReply(f"{client.url}/generate ended its stream without a summary")
