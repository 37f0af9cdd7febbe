"""Starts the services of the compose file as processes, and runs every query of the dashboard in Prometheus.

    apt-get install prometheus iproute2
    sudo .venv/bin/python -m deploy.docker.check_dashboard --picture dashboard.png

Verifiers, drafter and router run from this checkout, Prometheus is Debian's: with the variables, names, ports and files
of deploy/docker, in a network of their own. Prometheus begins without the profile `router`, and finds its services when
they are there. They write texts, and a verifier and the router are killed and started again once each. Each expression
of the dashboard must then have given data; a panel without any ends the program with status 1. Grafana is not needed:
the picture is drawn from what Prometheus replied.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import yaml

from deploy.docker.check_image import ADDRESS, KEY, ROOT, Failed, check, must, post
from deploy.docker.names import name_server

FOLDER = ROOT / "deploy/docker"
DASHBOARD = ROOT / "docs/monitoring/grafana-dashboard.json"
PROMETHEUS = "http://127.0.0.1:9090"
# Where each service is: those of one port need addresses of their own.
PLACES = {
    **dict.fromkeys(("verifier", "drafter", "router", "prometheus"), "127.0.0.1"),
    **{"verifier-2": "127.0.0.2", "verifier-3": "127.0.0.3"},
}
PROFILE = ("verifier-2", "verifier-3", "router")
WITH_PROFILE = {"DRAFTER_VERIFIER": "http://router:8090"}  # as in .env.example
PROGRAMS = {"verifier": ["verifier_server"], "drafter": ["drafter_client", "serve"], "router": ["specpair", "router"]}
PROMPTS = ("def main(", "import os\n", "class Stack:\n", "for i in range(")
_START = 60.0  # seconds that a service may take to start
_AWAY = 6.0  # seconds that one is away
_RATE = "20s"  # what Grafana takes for $__rate_interval at this scrape interval
_STEP = 5  # seconds between points
_MOST_NAMED = 5  # curves of a panel that the picture names


def as_process(name: str, given: Mapping[str, str] = {}) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a service of the compose file. `given`: variables of .env. All keys are `KEY`."""
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"][name]

    def value(variable: re.Match[str]) -> str:
        return given.get(variable[1], variable[2] or KEY)

    environment = {
        each: re.sub(r"\$\{(\w+)(?::-([^}]*))?[^}]*\}", value, str(text))
        for each, text in found["environment"].items()
        if text is not None
    }
    program = PROGRAMS[name.partition("-")[0]]
    return [sys.executable, "-m", *program, "--host", PLACES[name], *found.get("command", [])], environment


@contextmanager
def process(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running program; its output goes to a file in `folder`."""
    with (folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.log").open("wb") as log:
        given = {**os.environ, "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT), **environment}
        started = subprocess.Popen(command, env=given, stdout=log, stderr=log, cwd=folder)
    try:
        yield started
    finally:
        started.terminate()
        with suppress(subprocess.TimeoutExpired):
            started.wait(30)
        started.kill()


def get(url: str) -> Any:
    with build_opener(ProxyHandler({})).open(url, timeout=10) as reply:
        return json.load(reply) if "json" in reply.headers["Content-Type"] else reply.read().decode()


def wait_for(url: str) -> None:
    """Wait until the URL answers with 200. Raises Failed."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        with suppress(URLError, ConnectionError):
            get(url)
            return
        time.sleep(0.2)
    raise Failed(f"{url}: no answer within {_START:.0f} s")


def expressions() -> Iterator[tuple[str, str, str]]:
    """Title, expression and legend of each curve, with all values of the dashboard's lists selected."""
    given = {"$__rate_interval": _RATE, "$model_name": ".*", "$drafter": "drafter.*", "$router": "router.*"}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$instance", "verifier.*")
            for variable, value in given.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression, target["legendFormat"]


def curves(expression: str, begin: float, end: float) -> list[Any]:
    """The curves of an expression: labels, and values by time."""
    asked = urlencode({"query": expression, "start": begin, "end": end, "step": _STEP})
    found: list[Any] = get(f"{PROMETHEUS}/api/v1/query_range?{asked}")["data"]["result"]
    return found


def write_texts(stop: Event, ask: Callable[[int], object]) -> None:
    """Ask for one text after the other. While the verifier is away, requests fail as they should."""
    number = 0
    while not stop.is_set():
        number += 1
        with suppress(URLError, ConnectionError, json.JSONDecodeError):
            ask(number)


def at_the_drafter(number: int) -> object:
    mode = ("remote", "auto", "target")[number % 3]
    body = {"prompt": PROMPTS[number % 4], "max_tokens": 120, "temperature": 0.8, "speculative": {"mode": mode}}
    return post("drafter", "/v1/completions", body)


def by_the_router(number: int) -> object:
    return post("router", "/generate", {"prompt": PROMPTS[number % 4], "max_tokens": 60})


def targets() -> dict[str, str]:
    """The targets that Prometheus scrapes, with their state."""
    found = get(f"{PROMETHEUS}/api/v1/targets?state=active")["data"]["activeTargets"]
    return {each["labels"]["instance"]: each["health"] for each in found}


def wait_for_targets(*names: str) -> None:
    """Wait until Prometheus scrapes exactly these targets. Raises Failed."""
    until = time.monotonic() + _START
    while (found := targets()) != dict.fromkeys(names, "up"):
        if time.monotonic() > until:
            raise Failed(f"Prometheus does not scrape {names}, but {found}")
        time.sleep(0.5)
    must(True, f"Prometheus scrapes {', '.join(sorted(names))}")


def serve(folder: Path, seconds: float, picture: Path | None) -> None:
    """Start the services, have texts written, and check each expression. This process has a network of its own."""
    check("ip", "link", "set", "lo", "up")
    for file, text in {
        "hosts": "".join(f"{address} {name}\n" for name, address in PLACES.items()),
        "resolv.conf": "nameserver 127.0.0.1\n",
    }.items():
        (folder / file).write_text(text, encoding="ascii")
        check("mount", "--bind", str(folder / file), f"/etc/{file}")
    resolved: dict[str, str] = {}
    with ExitStack() as stack:
        stack.enter_context(name_server(resolved))

        def start(name: str) -> subprocess.Popen[bytes]:
            command, environment = as_process(name, WITH_PROFILE)
            return stack.enter_context(process(command, folder, environment))

        verifier = start("verifier")
        shutil.copy(FOLDER / "prometheus.yaml", folder / "prometheus.yml")
        shutil.copy(ROOT / "docs/monitoring/alerts.yml", folder)
        given = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        stack.enter_context(process(["prometheus", *given], folder, {}))
        command, environment = as_process("drafter")
        with process(command, folder, environment):
            for url in (f"{PROMETHEUS}/-/ready", f"{ADDRESS['drafter']}/health"):
                wait_for(url)
            wait_for_targets("verifier:8000", "drafter:8080")
        running = {name: start(name) for name in PROFILE} | {"verifier": verifier}
        resolved |= {name: PLACES[name] for name in PROFILE}
        wait_for(f"{ADDRESS['router']}/health")
        start("drafter")
        wait_for(f"{ADDRESS['drafter']}/health")
        everything = ("verifier:8000", "verifier-2:8000", "verifier-3:8000", "router:8090", "drafter:8080")
        wait_for_targets(*everything)
        begin, stop = time.time(), Event()
        asking = (at_the_drafter, at_the_drafter, by_the_router)
        threads = [Thread(target=write_texts, args=(stop, ask)) for ask in asking]
        for thread in threads:
            thread.start()
        stack.callback(stop.set)
        for name in ("verifier", "router"):  # the first is the router's to notice, the second the drafter's
            time.sleep(seconds / 3)
            running[name].kill()
            time.sleep(_AWAY)
            start(name)
        time.sleep(seconds / 3)
        end = time.time()
        wait_for_targets(*everything)
        rules = get(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"][0]["rules"]
        must(all(each["health"] == "ok" for each in rules), f"Prometheus evaluates {len(rules)} alert rules")
        found = [(title, legend, curves(asked, begin, end)) for title, asked, legend in expressions()]
        empty = [title for title, _, each in found if not each]
        must(not empty, f"{len(found)} expressions have given data" if not empty else f"without data: {empty}")
        if picture is not None:
            draw(found, begin, picture)
        stop.set()
        for thread in threads:
            thread.join()


def draw(found: Sequence[tuple[str, str, list[Any]]], begin: float, path: Path) -> None:
    """The panels as a picture, where the dashboard has them."""
    import matplotlib
    from PIL import Image

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    shown = [panel for panel in panels if panel["type"] != "row"]
    rows = {panel["gridPos"]["y"]: panel["title"] for panel in panels if panel["type"] == "row"}
    lines = sorted({panel["gridPos"]["y"] for panel in shown})
    figure, axes = pyplot.subplots(len(lines), 3, figsize=(15, 2.1 * len(lines)), squeeze=False)
    for panel in shown:
        at = panel["gridPos"]
        plot = axes[lines.index(at["y"])][at["x"] // 8]
        row = rows.get(at["y"] - 1) if at["x"] == 0 else None
        plot.set_title(f"{row}: {panel['title']}" if row else panel["title"], fontsize=9, loc="left")
        for title, legend, each in found:
            for curve in each if title == panel["title"] else ():
                points = [(float(when) - begin, float(value)) for when, value in curve["values"]]
                plot.plot(*zip(*points, strict=True), label=named(legend, curve["metric"]), linewidth=1)
        plot.tick_params(labelsize=8)
        plot.set_ylim(bottom=0)
        plot.set_ylabel(panel["fieldConfig"]["defaults"]["unit"], fontsize=7)
        handles = plot.get_legend_handles_labels()[0][:_MOST_NAMED]
        plot.legend(handles, [each.get_label() for each in handles], fontsize=7, loc="upper left", framealpha=0.6)
    figure.tight_layout()
    drawn = BytesIO()
    figure.savefig(drawn, dpi=70)
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(32).save(path, optimize=True)  # a fifth of the size


def named(legend: str, labels: Mapping[str, str]) -> str:
    """A Grafana legend filled with the labels of a curve."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), legend)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Ask Prometheus every question of the dashboard, under load.")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long texts are written")
    parser.add_argument("--picture", type=Path, help="draw the panels to this file")
    parser.add_argument("--own-network", action="store_true", help="this process has a network of its own")
    options = parser.parse_args(arguments)
    if not options.own_network:
        given = sys.argv[1:] if arguments is None else [*arguments]
        again = [sys.executable, "-m", "deploy.docker.check_dashboard", "--own-network", *given]
        return subprocess.run(["unshare", "--net", "--mount", *again], cwd=ROOT).returncode
    with tempfile.TemporaryDirectory() as folder:
        try:
            serve(Path(folder), options.seconds, options.picture)
        except Failed as error:
            print(f"check_dashboard: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
