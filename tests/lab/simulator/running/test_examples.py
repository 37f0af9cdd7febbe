"""The files of the worked questions run, and their searches have the candidates that they name."""

from pathlib import Path

import pytest

from lab.simulator.configuration.reading import read
from lab.simulator.running.simulate import seed_of, simulate
from lab.simulator.search.search_file import read_search
from lab.simulator.search.space import Space, candidates
from tests.lab.simulator.fleet.fleets import Kept
from tests.paths import ROOT

FILES = sorted((ROOT / "examples" / "simulator").glob("*.yaml"))
SEARCHES = [each for each in FILES if each.stem.endswith("-search")]


@pytest.mark.parametrize("file", [each for each in FILES if each not in SEARCHES], ids=lambda file: file.stem)
def test_a_second_of_the_file_runs(file: Path) -> None:
    kept = Kept()
    configuration = read(file, ["sim_time_ms=1000", "burn_in_ms=0"])
    assert simulate(configuration, seed_of(configuration, 0), kept) == 1.0
    assert kept.samples


@pytest.mark.parametrize("file", SEARCHES, ids=lambda file: file.stem)
def test_all_candidates_of_a_search_can_run(file: Path) -> None:
    keys = read_search(file)
    found, complaints = candidates(Space(keys.space, keys.variants), file.with_stem(file.stem.removesuffix("-search")))
    assert len(found) > 1 and complaints == []
