"""The command `drafter serve`: OpenAI's API in front of a pair."""

import argparse
import logging
import sys
from contextlib import ExitStack

from drafter_client.cli.steps import check_draft_n, pair_of, served_options
from drafter_client.options import Mode
from drafter_client.pair import Pair
from drafter_client.serve.app import AppOptions, create_app
from drafter_client.serve.live import Feed
from drafter_client.serve.metrics import DrafterMetrics, Observers
from gateway.openai_api.tools.styles import style_named
from gateway.router.registration import registration_of
from specpair.command_line.setting_values import SettingsError
from specpair.http_service.certificate import certificate_of
from specpair.http_service.keys.access import DRAFTER
from specpair.http_service.keys.gate import Gate
from specpair.http_service.listening import bind_sockets, serve, shown_address, welcome
from specpair.http_service.observability import logs
from specpair.http_service.observability.metrics import ServiceMetrics
from specpair.http_service.sharing.share import share_of
from specpair.http_service.web_pages import Hosts, Origins, read_hosts, read_origins
from specpair.protocol.terminal_text import one_line

_log = logging.getLogger("specpair.drafter")


def run_serve(options: argparse.Namespace) -> int:
    """Serve until stopped. Returns the exit status: 1 when the port is in use, a file of keys or the certificate
    cannot be read, or settings of a router are missing."""
    logs.configure(options.log_format)
    try:
        share = share_of(options, options.insecure, "drafter", options.settings.key)
        if share is not None:
            vars(options).update(share.options(options.host))
        gate = Gate.of(
            options.serve_key, options.keys_file, options.insecure, DRAFTER, options.settings.key("keys_file")
        )
        registration = registration_of(options.settings, options.settings.key)
        certificate = certificate_of(options.ssl_certfile, options.ssl_keyfile, options.settings.key)
        sockets = bind_sockets(options.host, options.port)
    except SettingsError as error:
        print(f"drafter: {error}", file=sys.stderr)
        return 1
    pair: Pair | None = None
    metrics = ServiceMetrics(lambda: "" if pair is None else pair.target.name)
    counter, feed = DrafterMetrics(metrics), Feed()
    with ExitStack() as on_failure:
        for bound in sockets:
            on_failure.enter_context(bound)
        pair = pair_of(
            options, options.texts, Observers(counter, feed), counter.outage, _log.warning, serves=True, waits=True
        )
        on_failure.callback(pair.close)
        check_draft_n(pair, options)
        chosen = served_options(options)
        if chosen.mode is Mode.AUTO and (reason := chosen.one_mode) is not None:
            _log.warning("mode auto uses %s for all texts, because of %s", pair.settled_mode(chosen), reason)
        how = AppOptions(
            drain=options.drain,
            access_log=options.access_log,
            metrics_open=options.metrics_open,
            gate=gate,
            origins=Origins(read_origins(options.cors_origins), options.settings.key("cors_origins")),
            hosts=Hosts(read_hosts(options.allowed_hosts), options.settings.key("allowed_hosts")),
            tool_style=style_named(options.tool_style),
            strict=options.strict,
            keep_lines=options.keep_lines,
        )
        app = create_app(
            *(pair, chosen, options.texts, options.queue, metrics), feed=feed, registration=registration, how=how
        )
        on_failure.pop_all()
    drafter = f", {pair.draft_model} drafts" if pair.draft_model else ""
    for bound in sockets:
        scheme = "http" if certificate is None else "https"
        where = f"{one_line(pair.target.name)}{drafter}: {scheme}://{shown_address(bound)}/v1"
        if options.log_format == "json":
            _log.info("%s", where)
        else:
            print(f"{where}  (Ctrl-C ends it)", file=sys.stderr)
    if share is not None:
        welcome(app, share, sockets)
    serve(app, sockets, certificate, log_level="warning")
    return 0
