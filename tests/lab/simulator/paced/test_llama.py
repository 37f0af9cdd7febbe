"""llama.cpp's engine at another pace: each pass that it runs takes its cost, also those that nobody asked for."""

from contextlib import closing
from pathlib import Path

import pytest

from backends.recurrent import JOINED
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced.llama import load_paced_llama
from lab.simulator.paced.pace import PassPacer
from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.clock import Time
from tests.stand_ins.tiny_architectures import write_tiny_architecture


def test_tokens_that_are_read_again_take_their_time(tmp_path: Path) -> None:
    path, time = tmp_path / "mamba2.gguf", Time()
    write_tiny_architecture("mamba2", path)
    pace = PassPacer(LinearCost(10.0, 0.5, 0.0), time.clock, time.sleep)

    def took(backend: Backend, start: int, count: int) -> float:
        before = time.now
        backend.extend([Entry(0, start, [*range(10, 10 + count)], count - 1)])
        return 1e3 * (time.now - before)

    with closing(load_paced_llama(LoadOptions(path, 1, 256, threads=1), pace)) as backend:
        assert took(backend, 0, 20) == pytest.approx(10.0 + 19 * 0.5)
        assert took(backend, 20, 5) == pytest.approx(10.0 + 4 * 0.5)
        assert backend.reread(0, 23) == 3
        assert took(backend, 23, 2) == pytest.approx(10.0 + (3 + 1) * 0.5), "three were accepted"
        assert took(backend, 25, JOINED + 5) == pytest.approx(10.0 + (JOINED + 4) * 0.5)
        assert took(backend, 25 + JOINED + 2, 1) == pytest.approx(10.0 + (JOINED + 1) * 0.5 + 10.0), "in its own pass"
