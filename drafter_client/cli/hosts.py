"""`drafter join`, `hosts` and `leave`: the hosts that this machine uses without an address or a key."""

import socket
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime

from drafter_client.cli.tune import run_tune, tune_options
from drafter_client.display.progress import verifier_loading
from drafter_client.errors import DrafterError
from drafter_client.hosts import Host, HostsFile, join
from drafter_client.http.client import VerifierClient
from specpair.command_line.parser import Parser, Switch
from specpair.command_line.setting_sources import PROGRAMS
from specpair.command_line.table import NOTHING, Table, print_table, standard_output
from specpair.http_service.sharing import lan
from specpair.http_service.sharing.link import BadLink, read_link
from specpair.protocol.errors import SpecPairError
from specpair.protocol.terminal_text import one_line

COMMANDS = ("join", "hosts", "leave")
_LOOKS = 5  # requests whose fastest is the round trip
_LAN_SECONDS = 2.0  # in which other hosts have to say that they are there: some wait for a second


def hosts_parser(command: str) -> Parser:
    made: Parser = {"join": _join_parser, "hosts": _list_parser, "leave": _leave_parser}[command]()
    return made


def run_hosts(command: str, arguments: Sequence[str]) -> int:
    """Run a command. Returns the exit status. Exits with 2 for bad flags. Raises DrafterError."""
    parser = hosts_parser(command)
    options = parser.parse(arguments)
    return {"join": _join, "hosts": _list, "leave": _leave}[command](parser, options)


def _join_parser() -> Parser:
    made = Parser(
        "drafter join",
        usage="LINK [FLAGS]",
        description="Join a host that was started with --share, by the link that it printed. The host is recognised "
        "by its certificate, and gives this machine a key of its own. All commands then use the host joined last.",
        examples=("drafter join specpair://192.168.1.20:8000/oPHN…", "drafter join - < link.txt"),
    )
    made.add_argument("link", metavar="LINK", help="the link; -: read it from standard input")
    made.add_argument("--yes", action=Switch, help="fetch draft models without a question")
    made.add_argument("--tune", action=Switch, default=True, help="find the draft model that helps most (default: yes)")
    made.add_argument("--name", metavar="NAME", default="", help="what to call the host (default: its own name)")
    return made


def _list_parser() -> Parser:
    return Parser(
        "drafter hosts",
        usage="[FLAGS]",
        description="List the joined hosts. The last one is used unless --host names another. On a terminal, and with "
        "the extra lan, also list others that share a service on this network.",
        examples=("drafter hosts",),
    )


def _leave_parser() -> Parser:
    made = Parser(
        "drafter leave",
        usage="NAME",
        description="Forget a joined host and its key. The host keeps the key until somebody revokes it there.",
        examples=("drafter leave bigbox",),
    )
    made.add_argument("name", metavar="NAME", help="the host, as 'drafter hosts' shows it")
    return made


def _join(parser: Parser, options: Namespace) -> int:
    try:
        link = read_link(sys.stdin.read() if options.link == "-" else options.link)
    except BadLink as error:
        parser.error(str(error))
    hosts = HostsFile()
    host = join(link, socket.gethostname(), time.time())
    host = _named(host, options.name, hosts)
    hosts.keep(host)
    print(f'{host.name}: certificate matches · joined as "{host.key_name}" · key in {hosts.path} (0600)')
    if host.service == "drafter":
        print(f"programs use OpenAI's API at {host.url}/v1, with the key and the certificate in that file")
        return 0
    with closing(VerifierClient(host.url, api_key=host.key, trust=host.trust)) as client:
        try:
            with verifier_loading() as on_wait:
                client.wait_until_ready(on_wait=on_wait)
            info, trip = client.model(), _round_trip(client)
        except (DrafterError, SpecPairError) as error:
            print(f"{host.name} is joined, and cannot be asked yet: {one_line(str(error))}", file=sys.stderr)
            return 0
    print(f"target {one_line(info.name)} · round trip {1e3 * trip:.1f} ms", flush=True)
    if not options.tune:
        return 0
    return run_tune(tune_options(["--host", host.name, *(["--yes"] if options.yes else [])]))


def _named(host: Host, wanted: str, hosts: HostsFile) -> Host:
    """The host, by the name that was wanted, or by its own with a number behind it if another host has that."""
    same = {each.name: each for each in hosts.all() if each.certificate != host.certificate}
    name = wanted or next(
        each for each in (host.name, *(f"{host.name}-{number}" for number in range(2, 1000))) if each not in same
    )
    if name in same:
        raise DrafterError(f"another host is called {name}: choose another --name, or first: drafter leave {name}")
    return replace(host, name=name)


def _round_trip(client: VerifierClient) -> float:
    """Seconds of the fastest of a few small requests."""
    best = float("inf")
    for _ in range(_LOOKS):
        began = time.perf_counter()
        client.health()
        best = min(best, time.perf_counter() - began)
    return best


def _list(_parser: Parser, _options: Namespace) -> int:
    hosts = HostsFile().all()
    if not hosts:
        print("no host was joined: start one with --share, and paste the command that it prints")
    else:
        headings = ("host", "service", "address", "as", "joined", "draft model", "gain")
        print_table(Table(headings, tuple(map(_row, hosts))), standard_output())
    joined = {host.trust.fingerprint for host in hosts}
    with suppress(lan.LanError):
        for seen in dict.fromkeys(lan.look(_LAN_SECONDS)) if sys.stdout.isatty() else ():  # scripts need not wait
            if seen.pin not in joined:
                where = f"{one_line(seen.name)} ({seen.service}, {', '.join(seen.addresses[:1])})"
                print(f"not joined: {where}; ask for a link there: {PROGRAMS[seen.service]} invite NAME")
    return 0


def _row(host: Host) -> tuple[str, ...]:
    joined = f"{datetime.fromtimestamp(host.joined):%Y-%m-%d}"
    gain = f"{host.gain:.2f}x" if host.gain else NOTHING
    return host.name, host.service, host.addresses[0], host.key_name, joined, host.draft_model or NOTHING, gain


def _leave(_parser: Parser, options: Namespace) -> int:
    hosts = HostsFile()
    host = hosts.find(options.name)
    if host is None:
        raise DrafterError(f"{options.name} was not joined: 'drafter hosts' lists the joined ones")
    hosts.forget(host.name)
    print(f"{host.name} is forgotten; there, '{PROGRAMS[host.service]} key revoke {host.key_name}' ends the key")
    return 0
