"""Profiles of Vidur: how a pass is put together from the kernels of a layer, and files of another form."""

import csv
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.costs.cost import BadCost, CostUnknown
from lab.simulator.costs.vidur import VidurCost, read_vidur

TOKEN_KERNELS = ("attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act", "mlp_down_proj", "add")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def kernels(tokens: int, degree: int = 1, width: int = 8) -> dict[str, Any]:
    """A row of mlp.csv: each of seven kernels takes 0.1 ms and 0.01 ms a token."""
    times = {f"time_stats.{each}.median": 0.1 + 0.01 * tokens for each in TOKEN_KERNELS}
    sizes = {"n_embd": width, "n_head": 4, "n_kv_head": 2, "num_tokens": tokens, "num_tensor_parallel_workers": degree}
    return times | {"time_stats.emb.median": 99.0} | sizes


def attention(batch: int, chunk: int, held: int, ms: float, degree: int = 1) -> dict[str, Any]:
    kind, other = ("attn_decode", "attn_prefill") if chunk == 0 else ("attn_prefill", "attn_decode")
    sizes = {"n_embd": 8, "n_q_head": 4, "n_kv_head": 2, "num_tensor_parallel_workers": degree, "batch_size": batch}
    times = {f"time_stats.{kind}.median": ms, f"time_stats.{other}.median": ""}
    return times | sizes | {"prefill_chunk_size": chunk, "kv_cache_size": held}


PASSES = [
    *(attention(batch, 0, held, batch * (1 + held / 100)) for batch in (1, 4) for held in (0, 100)),
    *(attention(1, chunk, held, chunk * (1 + held / 100) / 10) for chunk in (10, 50) for held in (0, 100)),
]


def files(folder: Path, degree: int = 1) -> tuple[Path, Path]:
    mlp = write(folder / "mlp.csv", [kernels(tokens, each) for tokens in (1, 101) for each in {1, degree}])
    rows = [row | {"num_tensor_parallel_workers": degree} for row in PASSES]
    return mlp, write(folder / "attention.csv", rows)


@pytest.fixture
def cost(tmp_path: Path) -> VidurCost:
    return read_vidur(*files(tmp_path), layers=3, per_pass=0.5)


@pytest.mark.parametrize(
    ("sequences", "attended"),
    [
        ([(1, 50)], 1.5),
        ([(1, 25), (1, 75)], 3.0),
        ([(30, 0)], 3.0),
        ([(1, 100), (10, 100), (20, 0)], 2.0 + 2.0 + 2.0),
        ([(4, 0)], 1.0),
    ],
    ids=["one decodes", "two at their mean context", "a prompt", "a mixture", "a short chunk counts as the shortest"],
)
def test_a_pass_is_its_layers_and_what_is_beside_them(
    cost: VidurCost, sequences: list[tuple[int, int]], attended: float
) -> None:
    tokens = sum(new for new, _ in sequences)
    layer = 7 * (0.1 + 0.01 * tokens) + attended
    assert cost.seconds(sequences) == pytest.approx(3 * layer / 1e3 + 0.5)


def test_devices_exchange_twice_a_layer(tmp_path: Path) -> None:
    sizes = {"num_workers": 2, "devices_per_node": 2, "collective": "all_reduce"}
    rows = [{"time_stats.all_reduce.median": size / 16, "size": size} | sizes for size in (16, 1616)]
    exchange = write(tmp_path / "all_reduce.csv", [*rows, rows[0] | {"devices_per_node": 1, "size": 1}])
    alone = read_vidur(*files(tmp_path), layers=1).seconds([(1, 0)])
    both = read_vidur(*files(tmp_path, 2), layers=1, degree=2, all_reduce=exchange).seconds([(1, 0)])
    assert both - alone == pytest.approx(2e-3), "of 8 values of 2 bytes a token"
    with pytest.raises(BadCost, match=r"all_reduce\.csv"):
        read_vidur(*files(tmp_path, 2), layers=1, degree=2)


@pytest.mark.parametrize(
    ("sequences", "words"),
    [([(405, 0)], "405 tokens"), ([(1, 0)] * 17, "17 sequences"), ([(1, 401)], "401 tokens of context")],
)
def test_a_pass_far_beyond_the_profiles_is_refused(
    cost: VidurCost, sequences: list[tuple[int, int]], words: str
) -> None:
    with pytest.raises(CostUnknown, match=words):
        cost.seconds(sequences)


def test_files_of_another_form_are_named(tmp_path: Path) -> None:
    mlp, passes = files(tmp_path)
    with pytest.raises(BadCost, match=r"mlp.csv has no row of degree 4"):
        read_vidur(mlp, passes, layers=1, degree=4)
    with pytest.raises(BadCost, match="layers and degree"):
        read_vidur(mlp, passes, layers=0)
    with pytest.raises(BadCost, match=r"none.csv is no profile"):
        read_vidur(tmp_path / "none.csv", passes, layers=1)
    other = write(tmp_path / "other.csv", [kernels(1, width=16)])
    with pytest.raises(BadCost, match="several models"):
        read_vidur(other, passes, layers=1)
    for row, words in (({"x": 1}, "no column num_tensor"), (kernels(1) | {"num_tokens": "x"}, "num_tokens is 'x'")):
        with pytest.raises(BadCost, match=words):
            read_vidur(write(tmp_path / "wrong.csv", [row]), passes, layers=1)
    with pytest.raises(BadCost, match="rows of decoding and of prompts"):
        read_vidur(mlp, write(tmp_path / "part.csv", PASSES[:4]), layers=1)
