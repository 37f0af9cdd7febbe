"""What routers add to a round: nginx, Envoy, ours, and Ray Serve, with the files in deploy/.

Method. Three scripted verifiers on loopback, and in front of them the routers that are installed; Ray Serve, where this
Python has it, starts replicas of its own. This process verifies four drafts by turns in a session of one verifier and
in one behind each router, over a connection each. The time of the forward pass is subtracted.

    python -m lab.benchmarks.routers [--rounds 1000]
"""

import tempfile
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

from drafter_client.http.client import VerifierClient
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.round_trip import SHARES, Session
from specpair.child_processes.serving import variables, verifier
from specpair.numbers import quantile
from tests.deploy.ray_serve import cluster
from tests.deploy.routers import FILES, free_port, program, routing

WARM_UP = 100


def main() -> None:
    options = options_of(__doc__, {"rounds": 1000})
    with_ray = find_spec("ray") is not None
    report = Report("routers", options, "routers_ray" if with_ray else "routers")
    context = (options.rounds + WARM_UP) * 8
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = [stack.enter_context(verifier(backend="scripted", context=context)) for _ in range(3)]
        urls = {"direct": running[0].url}
        for name, files in FILES.items():
            if program(name) is None:
                report.line(f"{name}: not installed")
                continue
            port = free_port()
            command = files(folder, port, [int(each.url.rpartition(":")[2]) for each in running])
            urls[name] = stack.enter_context(routing(command, port))
        if not with_ray:
            report.line("ray: not installed")
        else:
            ray = stack.enter_context(cluster())
            ray.deploy(3, **variables(backend="scripted", context=context))
            ray.wait_until_healthy(3)
            urls["ray"] = ray.url
        sessions = {}
        for name, url in urls.items():
            client = stack.enter_context(closing(VerifierClient(url)))
            client.wait_until_ready()
            sessions[name] = stack.enter_context(closing(Session(client)))
        taken: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(options.rounds + WARM_UP):
            for name, session in sessions.items():
                taken[name].append(session.round())
        for name, all_ms in taken.items():
            found = [quantile(all_ms[WARM_UP:], share) for share in SHARES]
            report.line(
                f"{name:9}" + "   ".join(f"p{100 * s:g} {ms:.3f} ms" for s, ms in zip(SHARES, found, strict=True))
            )
    report.save()


if __name__ == "__main__":
    main()
