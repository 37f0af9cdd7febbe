"""Writes the reports of a run into its folder."""

from collections.abc import Callable
from pathlib import Path

from lab.simulator.results import summary
from lab.simulator.results.report.page import page
from lab.simulator.results.report.picture import NoPicture, draw, draw_requests
from lab.simulator.results.summary import Summary
from specpair import shared_files

PAGE, PICTURE, REQUESTS = "report.html", "report.png", "requests.png"


def write_report(run: Summary, folder: Path, *, picture: bool, note: Callable[[str], object]) -> Path:
    """Write the summary, the page, and the pictures if they are asked for.

    `note`: told why there are no pictures.

    Returns the path of the page. Raises OSError.
    """
    summary.write(run, folder)
    with shared_files.replacing(folder / PAGE) as file:
        file.write(page(run).encode())
    if picture:
        try:
            draw(run, folder / PICTURE)
            if several := run.timelines:
                draw_requests(several, folder / REQUESTS)
        except NoPicture as missing:
            note(str(missing))
    return folder / PAGE
