"""Draws the picture of docs/simulator-results.md: the page of a run of the example, as a browser shows it.

    .venv/bin/python -m lab.pictures.simulator [--save]    # needs Chromium

It goes to `.cache/results/`, and to `docs/pictures/` only with `--save`. The same seed gives the same run.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.pictures.output import folder_of, parser_of
from lab.simulator import command_line
from tests.paths import ROOT

EXAMPLE = ROOT / "lab" / "simulator" / "example.yaml"
CHANGES = ("sim_time_ms=30000", "replications=3")
SIZE = "1150,1560"  # of the window: the beginning of the page
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    options = parser_of(__doc__).parse_args()
    browser = next((path for each in BROWSERS if (path := shutil.which(each))), None)
    if browser is None:
        sys.exit(f"none of these is on the path: {', '.join(BROWSERS)}")
    to = folder_of(options)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run"
        flags = [part for each in CHANGES for part in ("--set", each)]
        if command_line.run(["run", str(EXAMPLE), "--output", str(folder), *flags]):
            sys.exit("the run failed")
        picture = to / "simulator-page.png"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={SIZE}", f"--screenshot={picture}"]
        subprocess.run(
            [browser, *flags, (folder / "report.html").as_uri()], check=True, capture_output=True, timeout=120
        )
    print(f"written to {to}", file=sys.stderr)


if __name__ == "__main__":
    main()
