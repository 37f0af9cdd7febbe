"""The time of a forward pass from the profiles of Vidur (arXiv 2405.05465): its files mlp.csv, attention.csv and, for
several devices, all_reduce.csv.

Vidur measures the kernels of one layer: in mlp.csv those whose time depends on the tokens of the pass alone, and in
attention.csv attention over sequences of one new token (by their number and context) and over one sequence of several
new tokens (by their number and context). Times are medians in milliseconds, and linear between the points measured.

- A sequence of one new token counts as decoding, and those of a pass together, at their mean context. One of more new
  tokens, a draft to verify as well as a chunk of a prompt, counts as a prompt's chunk behind its context, for itself.
- Each layer has two all-reduces over several devices.
- The profiles hold neither the head nor what a processor does between passes: `per_pass` may state it.
- Passes beyond `REACH` times the most tokens, sequences or context of the profiles are refused with CostUnknown.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

from lab.simulator.costs.cost import BadCost, CostUnknown, SequencePass
from lab.simulator.costs.curve import Curve, Plane

REACH = 4.0  # times the largest pass of the profiles
_TOKEN_KERNELS = ("attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act", "mlp_down_proj")
_NORMS = ("input_layernorm", "post_attention_layernorm", "add")  # older files lack some
_SAVE = "attn_kv_cache_save"  # likewise; by the tokens of the pass
_EXCHANGED = 2  # bytes of a value that devices exchange

Row = dict[str, str]
Place = TypeVar("Place", float, tuple[float, float])


class VidurCost:
    """What passes of the profiled model take on the profiled device. `read_vidur` makes it."""

    def __init__(
        self,
        tokens: Curve,
        decode: Plane,
        prompt: Plane,
        layers: int,
        per_pass: float,
        most: tuple[float, float, float],
    ) -> None:
        """All in milliseconds but `per_pass`, in seconds. `most`: tokens, decoding sequences, context profiled."""
        self._tokens, self._decode, self._prompt = tokens, decode, prompt
        self._layers, self._per_pass = layers, per_pass
        self._most = dict(zip(("tokens", "sequences of one token", "tokens of context"), most, strict=True))

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        tokens = sum(new for new, _ in sequences)
        if not tokens:
            return 0.0
        decoding = [cached for new, cached in sequences if new == 1]
        asked = (tokens, len(decoding), max(cached for _, cached in sequences))
        for value, (what, most) in zip(asked, self._most.items(), strict=True):
            if value > REACH * most:
                raise CostUnknown(f"a pass over {value} {what} is beyond {REACH:g} times the {most:g} of the profiles")
        layer = self._tokens.at(tokens)
        if decoding:
            layer += self._decode.at(len(decoding), sum(decoding) / len(decoding))
        layer += sum(self._prompt.at(cached, new) for new, cached in sequences if new > 1)
        return self._layers * layer / 1e3 + self._per_pass


def read_vidur(
    mlp: Path,
    attention: Path,
    *,
    layers: int,
    degree: int = 1,
    all_reduce: Path | None = None,
    per_pass: float = 0.0,
) -> VidurCost:
    """The cost of a model of so many layers, split among `degree` devices, from the profiles of one of its layers.

    `per_pass`: seconds beside the layers. Raises BadCost for files of another form or of different models.
    """
    if layers < 1 or degree < 1 or per_pass < 0:
        raise BadCost(f"layers and degree must be 1 or more, and per_pass 0 or more: {layers}, {degree}, {per_pass}")
    kernels, passes = (
        _rows(path, lambda row: int(row["num_tensor_parallel_workers"]) == degree, f"degree {degree}")
        for path in (mlp, attention)
    )
    width = _one_model(mlp, kernels, attention, passes)
    by_tokens = _medians((_number(row, "num_tokens", mlp), _layer(row, mlp)) for row in kernels)
    decoding = [row for row in passes if float(row["prefill_chunk_size"]) == 0]
    prompts = [row for row in passes if float(row["prefill_chunk_size"]) > 0]
    if not decoding or not prompts:
        raise BadCost(f"{attention} needs rows of decoding and of prompts (prefill_chunk_size 0, and above)")

    decode = _medians(
        (
            (_number(row, "batch_size", attention), _number(row, "kv_cache_size", attention)),
            _time(row, "attn_decode", attention) + _time(row, _SAVE, attention, 0.0),
        )
        for row in decoding
    )
    prompt = _medians(
        (
            (_number(row, "kv_cache_size", attention), _number(row, "prefill_chunk_size", attention)),
            _time(row, "attn_prefill", attention) + _time(row, _SAVE, attention, 0.0),
        )
        for row in prompts
    )
    if degree > 1:
        exchange = _exchanges(all_reduce, degree)
        by_tokens = {
            tokens: layer + 2 * exchange.at(tokens * width * _EXCHANGED) for tokens, layer in by_tokens.items()
        }
    contexts = [held for _, held in decode] + [held for held, _ in prompt]
    most = (max(by_tokens), max(batch for batch, _ in decode), max(contexts))
    return VidurCost(Curve(by_tokens), Plane(decode), Plane(prompt), layers, per_pass, most)


def _exchanges(path: Path | None, degree: int) -> Curve:
    """Milliseconds of an all-reduce by its bytes."""
    if path is None:
        raise BadCost(f"{degree} devices need the profile of their all-reduce: give all_reduce.csv")
    rows = _rows(
        path,
        lambda row: (
            row["collective"] == "all_reduce" and int(row["num_workers"]) == degree == int(row["devices_per_node"])
        ),
        f"an all-reduce of {degree} devices of one node",
    )
    return Curve(_medians((_number(row, "size", path), _time(row, "all_reduce", path)) for row in rows))


def _rows(path: Path, wanted: Callable[[Row], bool], what: str) -> list[Row]:
    """The rows of a file that are wanted, of which it has `what`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if wanted(row)]
    except KeyError as error:
        raise BadCost(f"{path} is no profile of Vidur: it has no column {error.args[0]}") from None
    except (OSError, ValueError) as error:
        raise BadCost(f"{path} is no profile of Vidur: {error}") from None
    if not rows:
        raise BadCost(f"{path} has no row of {what}")
    return rows


def _one_model(mlp: Path, kernels: list[Row], attention: Path, passes: list[Row]) -> float:
    """The width of the one model that both files are about."""
    found = {tuple(_number(row, each, mlp) for each in ("n_embd", "n_head", "n_kv_head")) for row in kernels}
    found |= {tuple(_number(row, each, attention) for each in ("n_embd", "n_q_head", "n_kv_head")) for row in passes}
    if len(found) > 1:
        raise BadCost(
            f"{mlp} and {attention} are about several models, by width, heads and heads of keys: {sorted(found)}"
        )
    return found.pop()[0]


def _layer(row: Row, path: Path) -> float:
    """Milliseconds of the kernels that depend on the tokens alone."""
    return sum(_time(row, each, path) for each in _TOKEN_KERNELS) + sum(_time(row, each, path, 0.0) for each in _NORMS)


def _time(row: Row, kernel: str, path: Path, missing: float | None = None) -> float:
    name = f"time_stats.{kernel}.median"
    if missing is not None and not row.get(name):
        return missing
    return _number(row, name, path)


def _number(row: Row, column: str, path: Path) -> float:
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError):
        raise BadCost(f"{path} is no profile of Vidur: {column} is {row.get(column)!r}, and must be a number") from None


def _medians(points: Iterable[tuple[Place, float]]) -> dict[Place, float]:
    """One value a place: what was measured twice counts with its median."""
    found: dict[Place, list[float]] = {}
    for place, value in points:
        found.setdefault(place, []).append(value)
    return {place: median(values) for place, values in found.items()}
