"""Writes the reports of a run into its folder."""

from collections.abc import Callable
from pathlib import Path

from simulator.results import summary
from simulator.results.report.page import page
from simulator.results.report.picture import NoPicture, draw
from simulator.results.summary import Summary
from specpair import shared_files

PAGE, PICTURE = "report.html", "report.png"


def write_report(run: Summary, folder: Path, *, picture: bool, note: Callable[[str], object]) -> Path:
    """Write the summary, the page, and the picture if it is asked for.

    `note`: told why there is no picture.

    Returns the path of the page. Raises OSError.
    """
    summary.write(run, folder)
    with shared_files.replacing(folder / PAGE) as file:
        file.write(page(run).encode())
    if picture:
        try:
            draw(run, folder / PICTURE)
        except NoPicture as missing:
            note(str(missing))
    return folder / PAGE
