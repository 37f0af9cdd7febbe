"""Strategies for rows of logits and sampling settings, and a fake device that gives only the top logits of a row."""

import numpy as np
from hypothesis import strategies as st

from specpair.speculation.sampling.sampling import GREEDY_BELOW, Logits, Sampling
from specpair.speculation.sampling.top_logits import TopLogits

SHAPES = ("normal", "ties", "flat", "peaked", "masked", "mostly masked", "far from zero", "huge")


def logits_of(shape: str, size: int, seed: int) -> Logits:
    """One float32 row of `size` logits, of a shape that engines produce or that is hard for the fast form."""
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(size) * 4
    if shape == "ties":
        row = np.round(row)
    elif shape == "flat":
        row[:] = 0.25
    elif shape == "peaked":
        row[rng.integers(size)] += 30
    elif shape in ("masked", "mostly masked"):
        hidden = rng.random(size) < (0.3 if shape == "masked" else 0.99)
        hidden[rng.integers(size)] = False
        row[hidden] = -np.inf
    elif shape == "far from zero":
        row += 1e4
    elif shape == "huge":
        row *= 1e4
    return row.astype(np.float32)


rows = st.builds(logits_of, st.sampled_from(SHAPES), st.integers(1, 5000), st.integers(0, 2**32 - 1))
small_rows = st.builds(logits_of, st.sampled_from(SHAPES), st.integers(1, 12), st.integers(0, 2**32 - 1))
temperatures = st.sampled_from([GREEDY_BELOW, 0.01, 0.3, 0.7, 1.0, 2.0, 100.0]) | st.floats(GREEDY_BELOW, 100.0)
top_ks = st.sampled_from([0, 1, 2, 5, 40, 4999, 10_000]) | st.integers(0, 6000)
top_ps = st.sampled_from([1.0, 0.999999, 0.99, 0.9, 0.5, 0.1, 1e-6]) | st.floats(1e-9, 1.0)
samplings = st.builds(Sampling, st.integers(0, 2**53 - 1), temperatures, top_ks, top_ps)
unfiltered = st.builds(Sampling, st.integers(0, 2**53 - 1), temperatures)
positions = st.integers(0, 2**20)
seeds = st.integers(0, 2**32 - 1)
shares = st.sampled_from([0.0, 0.02, 0.2, 0.5, 0.8, 1.0]) | st.floats(0.0, 1.0)


class Device:
    """Keeps a row and gives its top logits. `seed` decides their order, and which ids tied at the edge are in."""

    def __init__(self, row: Logits, seed: int = 0) -> None:
        self.row, self.asked = row, 0
        self._random = np.random.default_rng(seed)

    def top_logits(self, n: int, temperature: float) -> TopLogits:
        """The top logits, computed in float32 as on a device."""
        if n == 1:
            ids = np.array([np.argmax(self.row)])
        else:
            ids = np.lexsort((self._random.permutation(len(self.row)), -self.row))[:n]
        self._random.shuffle(ids)
        with np.errstate(invalid="ignore"):
            scaled = self.row / np.float32(temperature)
            log_sum = scaled.max() + np.log(np.exp(scaled - scaled.max()).sum())
        return TopLogits(ids, self.row[ids], len(self.row), temperature, log_sum, self.full)

    def full(self) -> Logits:
        """The whole row; `asked` counts the calls."""
        self.asked += 1
        return self.row.copy()


def device_and_top_logits(row: Logits, share: float, sampling: Sampling, seed: int) -> tuple[Device, TopLogits]:
    """A device that keeps `row`, and top logits that hold a `share` of its ids, for `sampling`."""
    device = Device(row, seed)
    return device, device.top_logits(max(1, round(share * len(row))), sampling.softmax_temperature)
