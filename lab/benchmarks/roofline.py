"""How far the roofline of `lab.simulator.costs` is from passes that were measured.

Each line is a pass that somebody measured, beside what the catalogue's device and model give for it, and their ratio.
The device's efficiencies were fitted to the lines that are marked: their ratios say how well one pair of numbers fits
several passes, and the others how well it carries over. Below: each group's median and its widest miss.

Sources: the comments of `MEASURED`; `lab/benchmarks/results/` for this processor.

python -m lab.benchmarks.roofline [--save]
"""

from statistics import median
from typing import NamedTuple

from lab.benchmarks.harness.report import RESULTS, Report, options_of
from lab.simulator.costs.catalogue import hardware, roofline
from lab.simulator.costs.dimensions import Model
from lab.simulator.costs.roofline import Roofline
from lab.simulator.costs.tables import read_table


class Measured(NamedTuple):
    """Passes of `rows` sequences of `tokens` new tokens at `context`, and the milliseconds of one."""

    device: str
    model: str
    weights: str
    rows: int
    tokens: int
    context: int
    ms: float
    fitted: bool = False  # to this the device's efficiencies were fitted


def _spark(name: str, *points: tuple[int, int, float], fitted: bool) -> list[Measured]:
    """Steps of `llama-batched-bench`: (sequences, tokens of prompt, seconds of 32 steps). The first one was fitted."""
    return [
        Measured("dgx-spark", name, "q8_0", rows, 1, prompt + 16, 1e3 * seconds / 32, fitted and not at)
        for at, (rows, prompt, seconds) in enumerate(points)
    ]


def _step(device: str, name: str, weights: str, rate: float, *, fitted: bool = False) -> Measured:
    """512 tokens one after the other, at so many a second: 256 tokens of context on average."""
    return Measured(device, name, weights, 1, 1, 256, 1e3 / rate, fitted)


def _prompt(device: str, name: str, weights: str, tokens: int, rate: float, *, fitted: bool = False) -> Measured:
    """A prompt in one pass, at so many tokens a second."""
    return Measured(device, name, weights, 1, tokens, 0, 1e3 * tokens / rate, fitted)


MEASURED = [
    # https://github.com/ggml-org/llama.cpp/blob/4c7e9893c4ca8eec35d032726d14b74fae76cff8/benches/dgx-spark.md
    *_spark(
        "qwen2.5-7b",
        *((1, 512, 1.095), (2, 512, 1.175), (4, 512, 1.227), (8, 512, 1.308), (16, 512, 1.528), (32, 512, 1.726)),
        *((1, 4096, 1.126), (8, 4096, 1.570), (32, 4096, 2.716), (1, 8192, 1.164), (8, 8192, 1.843), (32, 8192, 3.818)),
        fitted=True,
    ),
    _prompt("dgx-spark", "qwen2.5-7b", "q8_0", 2048, 2276.28, fitted=True),
    *_spark(
        "qwen3-30b-a3b",
        *((1, 512, 0.555), (2, 512, 0.998), (4, 512, 1.255), (8, 512, 1.653), (16, 512, 2.198), (32, 512, 2.968)),
        *((1, 4096, 0.657), (8, 4096, 2.136), (32, 4096, 4.928)),
        fitted=True,
    ),
    _prompt("dgx-spark", "qwen3-30b-a3b", "q8_0", 2048, 3175.62),
    # https://github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference (Llama 3, snapshots of May 2024)
    _step("m2-ultra", "llama-3.1-8b", "fp16", 36.90, fitted=True),
    _step("m2-ultra", "llama-3.1-70b", "fp16", 4.76, fitted=True),
    _step("m2-ultra", "llama-3.1-8b", "q4_k_m", 78.81),
    _step("m2-ultra", "llama-3.1-70b", "q4_k_m", 12.48),
    _prompt("m2-ultra", "llama-3.1-8b", "fp16", 1024, 1202.74, fitted=True),
    _prompt("m2-ultra", "llama-3.1-8b", "q4_k_m", 1024, 1023.89),
    _prompt("m2-ultra", "llama-3.1-70b", "fp16", 1024, 145.82),
    _step("m3-max", "llama-3.1-8b", "fp16", 22.04, fitted=True),
    _step("m3-max", "llama-3.1-8b", "q4_k_m", 48.97),
    _step("m3-max", "llama-3.1-70b", "q4_k_m", 7.65),
    _prompt("m3-max", "llama-3.1-8b", "fp16", 512, 769.84, fitted=True),
    _prompt("m3-max", "llama-3.1-70b", "q4_k_m", 512, 70.19),
    _step("rtx-4090", "llama-3.1-8b", "fp16", 54.84, fitted=True),
    _step("rtx-4090", "llama-3.1-8b", "q4_k_m", 130.58),
    _prompt("rtx-4090", "llama-3.1-8b", "fp16", 512, 9382.0, fitted=True),
    _prompt("rtx-4090", "llama-3.1-8b", "q4_k_m", 512, 7138.99),
    # https://github.com/brand-o/normiebench/issues/3
    _step("m4", "llama-3.1-8b", "q4_k_m", 20.87, fitted=True),
    _prompt("m4", "llama-3.1-8b", "q4_k_m", 512, 224.81, fitted=True),
]
HERE = "verify_curve_amd-epyc_100m_torch_float32.json"
SMALL = Model(  # `--shape 100m` of lab.benchmarks.verify_curve
    d_model=768, layers=12, heads=12, kv_heads=4, head_dim=64, ffn=2048, vocabulary=32_000, tied_embeddings=True
)
SHAPES = [(1, 1), (1, 5), (1, 17), (2, 5), (4, 1), (4, 5), (4, 17)]
FITTED_HERE = {(1, 1), (4, 17)}


def main() -> None:
    options = options_of(__doc__, {})
    report = Report("roofline", options)
    report.line("", f"{'device':12} {'model':14} {'weights':8} {'pass':>18}  {'measured':>9} {'predicted':>9}  ratio")
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for each in [*MEASURED, *_here()]:
        cost = _small() if each.model == "100m" else roofline(each.model, each.device, weights=each.weights)
        predicted = 1e3 * cost.seconds([(each.tokens, each.context)] * each.rows)
        ratio = predicted / each.ms
        ratios[each.fitted].append(ratio)
        shape = f"{each.rows} x {each.tokens} at {each.context}"
        report.line(
            f"{each.device:12} {each.model:14} {each.weights:8} {shape:>18}  {each.ms:7.1f}ms {predicted:7.1f}ms  "
            f"{ratio:.2f}{' fitted' if each.fitted else ''}"
        )
    report.line("")
    for fitted, group in ratios.items():
        widest = max(group, key=lambda ratio: max(ratio, 1 / ratio))
        near = sum(0.85 <= ratio <= 1.15 for ratio in group)
        report.line(
            f"{'fitted' if fitted else 'not fitted'}: {len(group)} passes, median ratio {median(group):.2f}, "
            f"{near} within 15 %, the widest {widest:.2f}"
        )
    report.save()


def _small() -> Roofline:
    return Roofline(SMALL, hardware("epyc-thread").device, weights="fp32", cache="fp32")


def _here() -> list[Measured]:
    """Passes of this processor, as lab.benchmarks.verify_curve measured them."""
    table = read_table(RESULTS / HERE)
    return [
        Measured("epyc-thread", "100m", "fp32", rows, tokens, 512, 1e3 * table.seconds([(tokens, 512)] * rows), fitted)
        for rows, tokens in SHAPES
        for fitted in [(rows, tokens) in FITTED_HERE]
    ]


if __name__ == "__main__":
    main()
