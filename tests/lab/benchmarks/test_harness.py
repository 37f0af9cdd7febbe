"""The options and results of a measurement, what it says when a package is missing, the watch, and the relay."""

import argparse
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import pytest

from lab.benchmarks.harness import report
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import Report, parser_of
from tests.paths import ROOT
from tests.waiting import gone, needs_proc


def _options(*arguments: str) -> argparse.Namespace:
    flags = {"tokens": 8, "switch": False, "rtt": [0.2, 5.0], "how": {"default": "a", "choices": ("a", "b")}}
    return parser_of("a measurement", flags).parse_args(arguments)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "tracked")
    monkeypatch.setattr(report, "UNSAVED", tmp_path / "cache")
    return tmp_path


@pytest.mark.parametrize(("arguments", "folder"), [([], "cache"), (["--save"], "tracked")])
def test_results_go_to_the_tracked_folder_only_when_asked(
    folders: Path, arguments: list[str], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Report("round_trip", _options(*arguments))
    made.line("a figure")
    made.save()
    made.companion(".json").touch()
    assert sorted(path.relative_to(folders).as_posix() for path in folders.rglob("*.*")) == [
        f"{folder}/round_trip.json",
        f"{folder}/round_trip.txt",
    ]
    said = capsys.readouterr()
    assert said.out == (folders / folder / "round_trip.txt").read_text() and said.out.endswith("a figure\n")
    assert said.err == f"written to {folders / folder / 'round_trip.txt'}\n"


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("join_flood", "cryptography"),
        ("verify_curve", "torch"),
    ],
)
def test_a_missing_package_is_named_in_one_line_before_anything_is_measured(module: str, package: str) -> None:
    code = f"""
import runpy, sys
sys.modules[{package!r}] = None
sys.argv = [{module!r}] + (["--shape", "tiny"] if {module!r} == "verify_curve" else [])
runpy.run_module("lab.benchmarks.{module}", run_name="__main__")
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    assert line.startswith("not installed: ") and package in line and " -m pip install -r requirements/" in line


def test_a_page_names_every_measurement() -> None:
    folder = ROOT / "lab" / "benchmarks"
    names = {path.name for path in folder.iterdir() if (path / "__main__.py").is_file()}
    names |= {path.stem for path in folder.glob("*.py")} - {"__init__"}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert len(names) == 18 and [name for name in sorted(names) if f"benchmarks.{name}" not in pages] == []


@needs_proc
def test_the_watch_of_the_machine_ends_with_its_parent() -> None:
    parent = """
import multiprocessing, sys
from lab.benchmarks.harness.machine import watch
if __name__ == "__main__":
    with watch():
        print(multiprocessing.active_children()[0].pid, flush=True)
        sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        started.kill()
    assert gone(pid)


class Ends:
    """Both ends of one connection through a relay, with a limit on every wait."""

    def __init__(self, url: str, listener: socket.socket) -> None:
        there = urlsplit(url)
        self.client = socket.create_connection((there.hostname, there.port), timeout=10)
        self.server, _ = listener.accept()
        self.server.settimeout(10)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_round_trip_is_not_faster_than_the_link_and_the_first_waits_for_the_handshake(
    listener: socket.socket,
) -> None:
    with relay(url_of(listener), 10.0) as url:
        times = [perf_counter()]
        ends = Ends(url, listener)
        with ends.client, ends.server:
            for _ in range(3):
                ends.client.sendall(b"ping")
                ends.server.sendall(ends.server.recv(4))
                assert ends.client.recv(4) == b"ping"
                times.append(perf_counter())
        first, *others = [later - earlier for earlier, later in pairwise(times)]
        assert first >= 0.020
        assert min(others) >= 0.010
