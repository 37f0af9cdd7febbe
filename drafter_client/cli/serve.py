"""The command `drafter serve`: OpenAI's API in front of a pair."""

import argparse
import sys
from contextlib import suppress

import uvicorn

from command_line import start
from command_line.errors import SettingsError
from drafter_client.cli.shared_steps import check_draft_n, pair_of, served_options
from drafter_client.observability.drafter_metrics import DrafterMetrics
from drafter_client.serve.app import create_app
from http_service.listening import Server, bind_sockets
from http_service.observability import logs
from http_service.observability.metrics import ServiceMetrics
from http_service.request_head_timeout import with_head_deadline

KEEP_ALIVE = 75  # seconds
PATIENCE = 5  # seconds that requests have to end after the draining
HEAD_PATIENCE = 10.0  # seconds within which the head of a request must be complete


def run_serve(options: argparse.Namespace) -> int:
    """Serve until stopped. Returns the exit status: 1 when the port is in use."""
    logs.configure(options.log_format)
    try:
        sockets = bind_sockets(options.host, options.port)
    except SettingsError as error:
        print(f"drafter: {error}", file=sys.stderr)
        return 1
    model = ""
    metrics = ServiceMetrics(lambda: model)
    counter = DrafterMetrics(metrics)
    pair = pair_of(options, options.texts, counter, counter.outage)
    model = pair.target.name
    try:
        check_draft_n(pair, options)
        app = create_app(
            pair,
            served_options(options),
            options.texts,
            options.queue,
            metrics,
            drain=options.drain,
            access_log=options.access_log,
        )
    except BaseException:
        pair.close()
        raise
    drafter = f", {pair.draft_model} drafts" if pair.draft_model else ""
    for bound in sockets:
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"{pair.target.name}{drafter}: http://{shown}:{port}/v1  (Ctrl-C ends it)", file=sys.stderr)
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after its shutdown
        start.catch_interrupts()
        Server(
            uvicorn.Config(
                app,
                proxy_headers=False,  # uvicorn would trust X-Forwarded-For from every process on this machine
                http=with_head_deadline(HEAD_PATIENCE),
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=PATIENCE,
                access_log=False,
                log_level="warning",
                workers=1,
            )
        ).run(sockets)
    return 0
