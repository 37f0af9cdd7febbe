"""Measures a round without the model: client, HTTP and server, against the barest exchange of the same bodies.

Method. Two uvicorn processes on loopback: ours with the scripted backend, and one with a trivial FastAPI route that
answers a fixed reply. This process alternates a `VerifierClient.verify` of four drafts on ours and a POST of the same
body to the trivial one by httpx's own transport, both kept alive, both parsing the reply. The time that the server
reports for its forward pass is subtracted from ours: that is the model. Then it alternates sessions of the same
verifier, one of them through `specpair router`. With `--tls`, it takes turns with two commands `verifier` instead, one
of them over TLS with a certificate of its own that the client has pinned.

    python -m lab.benchmarks.round_trip [--rounds 2000] [--tls]
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
from fastapi import FastAPI

from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from drafter_client.http.trust import SYSTEM, Trust
from gateway.router.app import create_app
from gateway.router.messages import NodeSpec
from gateway.router.settings import RouterSettings
from lab.benchmarks.harness.machine import running
from lab.benchmarks.harness.report import Report, need, options_of
from specpair.child_processes.serving import serve, variables, verifier
from specpair.http_service.sharing.share import Share
from specpair.numbers import quantile
from specpair.speculation.draft import Draft

DRAFTS = [1, 2, 3, 4]
WARM_UP = 200
SHARES = (0.5, 0.9, 0.99)


def router() -> FastAPI:
    """A router in front of the verifier that the variable NODE names."""
    return create_app(RouterSettings(), [NodeSpec(url=os.environ["NODE"])])


def main() -> None:
    options = options_of(__doc__, {"rounds": 2000, "passes": 5, "tls": False})
    report = Report("round_trip", options, "round_trip_tls" if options.tls else None)
    context = (options.rounds + 2 * WARM_UP) * (options.passes + 2) * 2
    if options.tls:
        _measure_tls(report, context, options.passes, options.rounds)
        report.save()
        return
    with (
        verifier(backend="scripted", context=context) as ours,
        serve("lab.benchmarks.request_rate:trivial") as bare,
        closing(VerifierClient(ours.url)) as client,
        httpx.HTTPTransport() as transport,
    ):
        client.wait_until_ready()
        ratios: dict[float, list[float]] = {share: [] for share in SHARES}
        for number in range(options.passes):
            ours_ms, bare_ms = _alternate(client, transport, bare.url, options.rounds)
            shown = []
            for share in SHARES:
                a, b = quantile(ours_ms, share), quantile(bare_ms, share)
                ratios[share].append(a / b)
                shown.append(f"p{100 * share:g} ours {a:.3f} ms, bare {b:.3f} ms, {a / b:.2f}x")
            report.line(f"pass {number + 1}: " + "   ".join(shown))
        medians = (f"p{100 * share:g} {median(each):.2f}x" for share, each in ratios.items())
        report.line("median ratio: " + "   ".join(medians))
        with (
            serve("lab.benchmarks.round_trip:router()", {"NODE": ours.url}) as behind,
            closing(VerifierClient(behind.url)) as through,
        ):
            through.wait_until_ready()
            report.line(f"specpair router adds: {_added(client, through, options.rounds)}")
    report.save()


def _measure_tls(report: Report, context: int, passes: int, rounds: int) -> None:
    need("cryptography")
    with TemporaryDirectory() as folder:
        share = Share("verifier", Path(folder))
        share.prepare()
        flags = ("--ssl-certfile", str(share.certificate))
        with _command(context) as plain, _command(context, Trust(share.anchor_pem), *flags) as encrypted:
            for number in range(passes):
                report.line(f"pass {number + 1}: TLS adds: {_added(plain, encrypted, rounds)}")


@contextmanager
def _command(context: int, trust: Trust = SYSTEM, *flags: str) -> Iterator[VerifierClient]:
    """A client of the command `verifier` with these flags."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"{'https' if flags else 'http'}://127.0.0.1:{port}"
    environment = {**os.environ, **variables(backend="scripted", context=context)}
    command = ("-m", "verifier_server", "--port", str(port), *flags)
    with (
        httpx.Client(base_url=url, verify=trust.context, trust_env=False) as client,
        running(*command, client=client, ready="/health", environment=environment, seconds=60),
        closing(VerifierClient(url, trust=trust)) as asked,
    ):
        yield asked


def _added(one: VerifierClient, other: VerifierClient, rounds: int) -> str:
    """By how much longer a round takes with the other client, as both take turns."""
    with closing(Session(one)) as first, closing(Session(other)) as second:
        taken = [(first.round(), second.round()) for _ in range(rounds + WARM_UP)][WARM_UP:]
    short, long = zip(*taken, strict=True)
    shown = []
    for share in SHARES:
        less, more = quantile(short, share), quantile(long, share)
        shown.append(f"p{100 * share:g} {more - less:.3f} ms ({less:.3f} to {more:.3f})")
    return "   ".join(shown)


class Session:
    """A session of a verifier, over one connection."""

    def __init__(self, client: VerifierClient) -> None:
        self._client = client
        opened = client.prefill(TextSession([1, 2, 3]), {"seed": 1, "temperature": 0.0})
        self.id, self._position = opened.session_id, len(opened.prompt_ids) + len(opened.tokens)

    def round(self) -> float:
        """Milliseconds of a round of four draft tokens, without the forward pass."""
        began = time.perf_counter()
        response = self._client.verify(self.id, Draft.chain(self._position, DRAFTS))
        took = time.perf_counter() - began
        self._position += len(response.tokens)
        return 1e3 * (took - response.forward)

    def close(self) -> None:
        self._client.release(self.id)


def _alternate(
    client: VerifierClient, transport: httpx.HTTPTransport, bare_url: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each exchange: ours without the model, and the bare ones."""
    url = httpx.URL(bare_url).join("/verify")
    body = json.dumps({"position": 1234, "draft_tokens": DRAFTS}, separators=(",", ":")).encode()
    ours: list[float] = []
    bare: list[float] = []
    with closing(Session(client)) as session:
        headers = {"Content-Type": "application/json", "X-Session-Id": session.id}
        for _ in range(rounds + WARM_UP):
            ours.append(session.round())
            began = time.perf_counter()
            with closing(transport.handle_request(httpx.Request("POST", url, headers=headers, content=body))) as reply:
                json.loads(reply.read())
            bare.append(1e3 * (time.perf_counter() - began))
    return ours[WARM_UP:], bare[WARM_UP:]


if __name__ == "__main__":
    main()
