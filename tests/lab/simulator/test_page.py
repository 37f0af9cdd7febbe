"""What people look at: names of tenants, devices and conversations may be anything, and stay text wherever they are."""

import csv
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lab.simulator.configuration.reading import parse
from lab.simulator.fleet.record import Record, Sample
from lab.simulator.results.gathered import Gathered
from lab.simulator.results.page import page
from lab.simulator.results.replications import Replication, written
from lab.simulator.results.summary import RunSummary, show

NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><style>*{display:none}",
    "name\u202egnp.exe",
    "\x1b]0;pwned\x07\x1b[31m",
    "=HYPERLINK(1)",
    "[bold]name[/nothing]",
    "a\r\nb",
]
FILE = """
sim_time_ms: 60000
devices:
  verifiers: [{name: big, cost: {law: linear, decode_ms: 25}}]
workload: {arrival: poisson, rate_rps: 1, prompt_tokens: 10, output_tokens: 4}
mode: target
slo: {ttft_ms: 500}
"""
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MOST = 300_000  # characters of the page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def run(folder: Path) -> RunSummary:
    """A run in which everything has the hostile names, and a folder with its files."""
    configuration = parse(FILE, "fleet.yaml", folder)
    gathered = Gathered(configuration)
    with written(gathered, configuration, folder, 0) as observer:
        for number, name in enumerate(NAMES):
            sent = 10.0 + number
            record = Record(name, 0, name, 10, 2, sent, device=name, nodes=[name], times=[sent + 1, sent + 2])
            record.over = sent + 2
            observer.record(record)
        for at in (10.0, 20.0):
            observer.sample([Sample(at, name, name, True, 1, 1, 1, 2, 3, at / 2, 3, 3) for name in NAMES])
    told = gathered.measures(), gathered.tenants(), gathered.devices(), gathered.nodes(), gathered.series()
    return RunSummary.of(NAMES[0] + NAMES[4], configuration, [Replication(1, 60.0, *told)])


def test_the_page_is_one_file_without_scripts_or_outside_references(run: RunSummary) -> None:
    shown = page(run)
    tags = {name.lower() for name in re.findall(r"<([A-Za-z][A-Za-z0-9-]*)", shown)}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form", "image", "use", "a-b"}
    assert shown.count("<style") == 1 and "&lt;script&gt;alert(1)" in shown
    assert not re.search(r"<[^>]*\s(on\w+|src|srcset|style|action)=", shown, re.IGNORECASE)
    assert all(to.startswith("#") for to in re.findall(r'href="([^"]*)"', shown))
    assert not re.search(r"url\(|@import|https?://", shown)
    assert "Content-Security-Policy" in shown and "default-src &#x27;none&#x27;" in shown
    assert not UNSEEN.search(shown) and len(shown) < MOST


def test_the_table_in_the_terminal_has_no_control_codes_and_fits(run: RunSummary) -> None:
    for width in (60, 100):
        file = StringIO()
        show(run, Console(file=file, width=width, markup=False, highlight=False))
        lines = file.getvalue().splitlines()
        assert not UNSEEN.search("".join(lines)) and max(map(len, lines)) <= width
        assert any("[bold]name[/nothing]" in line for line in lines)


def test_files_hold_names_as_they_are_but_no_formulas(run: RunSummary, folder: Path) -> None:
    with (folder / "requests-1.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]
    assert NAMES[0] in cells and "'=HYPERLINK(1)" in cells
