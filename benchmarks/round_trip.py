"""What a round costs beyond the model: client, HTTP and server, against the barest exchange of the same bodies.

Method. Two uvicorn processes on loopback: ours with the scripted backend, and one with a trivial FastAPI route that
answers a fixed reply. This process alternates, one by one, a `VerifierClient.verify` of four drafts on ours and an
`http.client` POST of the same body, on a kept-alive connection, to the trivial one (which sends head and body in
two packets, as `http.client` does; ours sends one); both parse the JSON reply. From ours the time that the server
reports for its forward pass is taken off: that is the model. The median ratio of several passes is printed beside
each percentile.

    python -m benchmarks.round_trip [--rounds 2000]
"""

import argparse
import http.client
import json
import time
from statistics import median
from urllib.parse import urlsplit

from fastapi import FastAPI

from benchmarks.harness import verifier
from benchmarks.report import Report, add_save
from benchmarks.serving import serve
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient

DRAFTS = [1, 2, 3, 4]
REPLY = {
    "position": 1234,
    "accepted_prefix_len": 0,
    "judged": 4,
    "tokens": [97],
    "preds": [97],
    "total_tokens": 1235,
    "finish_reason": None,
    "timing": {"queue_ms": 0.123, "forward_ms": 0.456},
}

trivial = FastAPI()


@trivial.post("/verify")
async def trivial_verify(body: dict[str, object]) -> dict[str, object]:
    """The barest route that reads and writes JSON."""
    return REPLY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--passes", type=int, default=5)
    add_save(parser)
    options = parser.parse_args()
    report = Report("round_trip", options)
    context = (options.rounds + 400) * options.passes * 2
    with verifier(backend="scripted", context=context) as ours, serve("benchmarks.round_trip:trivial") as bare:
        client = VerifierClient(ours.url)
        client.wait_until_ready()
        connection = http.client.HTTPConnection(urlsplit(bare.url).netloc)
        ratios = []
        for number in range(options.passes):
            ours_ms, bare_ms = _alternate(client, connection, options.rounds)
            figures = [(_percentile(ours_ms, q), _percentile(bare_ms, q)) for q in (0.5, 0.9, 0.99)]
            ratios.append([a / b for a, b in figures])
            report.line(
                f"pass {number + 1}: "
                + "   ".join(
                    f"p{q} ours {a:.3f} ms, bare {b:.3f} ms, {a / b:.2f}x"
                    for q, (a, b) in zip((50, 90, 99), figures, strict=True)
                )
            )
        report.line(
            "median ratio: "
            + "   ".join(f"p{q} {median(r[at] for r in ratios):.2f}x" for at, q in enumerate((50, 90, 99)))
        )
    report.save()


def _alternate(
    client: VerifierClient, connection: http.client.HTTPConnection, rounds: int, warm_up: int = 200
) -> tuple[list[float], list[float]]:
    opened = client.prefill(TextSession([1, 2, 3]), {"seed": 1, "temperature": 0.0})
    position = len(opened.prompt_ids) + len(opened.tokens)
    body = json.dumps({"position": 1234, "draft_tokens": DRAFTS}, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", "X-Session-Id": opened.session_id}
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds + warm_up):
        began = time.perf_counter()
        verdict = client.verify(opened.session_id, position, DRAFTS)
        ours.append(1e3 * (time.perf_counter() - began) - verdict.forward_ms)
        position += len(verdict.tokens)
        began = time.perf_counter()
        connection.request("POST", "/verify", body, headers)
        json.loads(connection.getresponse().read())
        bare.append(1e3 * (time.perf_counter() - began))
    client.release(opened.session_id)
    return ours[warm_up:], bare[warm_up:]


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


if __name__ == "__main__":
    main()
