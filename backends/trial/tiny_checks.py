"""Compares an engine that runs a tiny random Llama with an uncached forward pass in NumPy."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backends.buckets import NARROW
from backends.compilation import folder_of
from backends.registry import TEST_ENGINES, compiles
from backends.trial.checks import (
    CheckFailed,
    Checks,
    CheckSkipped,
    Comparison,
    Load,
    Rows,
    devices_of,
    empty,
    random_batches,
)
from backends.trial.tiny_llama import TinyModel, reference_logits, write_tiny_gguf
from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.top_logits import TopLogits

# How much a logit may differ, on logits with a spread of 8, by number type. On a CPU, 2e-5, 0.2 and 0.03 were measured.
# Chips sum in other orders.
TOLERANCES = {"float32": 0.01, "bfloat16": 0.5, "float16": 0.1}
_SLOTS, _CONTEXT, _BATCH = 3, 255, 64
_TURNS = 30  # random batches
_KV_HEADS = 4  # at least, and a multiple of the devices


def check_tiny(
    report: Checks, engine: str, options: LoadOptions, folder: Path, load: Load, *, beside_model: bool
) -> None:
    """Run all checks on a tiny Llama that is written to `folder`.

    `options`: those of serving.
    `beside_model`: this process has loaded another model, or has tried to.
    """
    once = splits_once(engine, options)
    for dtype, changes in variants(engine, options, once=once):
        report.section(f"a tiny random Llama in {dtype}, compared with NumPy in float64")
        loaded: list[tuple[Backend, TinyModel]] = []

        def load_it(dtype: str = dtype, changes: dict[str, Any] = changes, to: list[Any] = loaded) -> str:
            if engine in TEST_ENGINES:
                raise CheckSkipped(f"the {engine} engine reads no model files")
            if once and beside_model:
                raise CheckSkipped("one process splits one model: run the self-test without a model, too")
            model = written(folder / f"tiny-{dtype}", options.tensor_parallel or 1)
            path = model.folder
            if engine == "llama_cpp":
                path /= "tiny.gguf"
                write_tiny_gguf(model, path)
            backend = load(engine, small_options(engine, replace(options, model=path, **changes)))
            to.append((backend, model))
            size = f"{backend.slots} slots of {backend.context_length} tokens, {backend.max_batch_tokens} in a batch"
            return f"{size}, on {devices_of(backend)}"

        if report.check("load", load_it):
            backend, model = loaded[0]
            reference = partial(reference_logits, model.config, model.weights)
            with closing(backend):
                for name, check in _CHECKS.items():
                    report.check(name, partial(_run, check, backend, reference, TOLERANCES[dtype]))


def _run(check: "Check", backend: Backend, reference: "Reference", allowed: float) -> str:
    empty(backend)
    comparison = Comparison(allowed)
    check(backend, reference, comparison)
    return comparison.verdict()


Reference = Callable[[Sequence[int]], Rows]  # the logits of a tiny model without a cache, a row for each token
Check = Callable[[Backend, Reference, Comparison], None]


def _random_batches(backend: Backend, reference: Reference, comparison: Comparison) -> None:
    held: list[list[int]] = [[] for _ in range(backend.slots)]
    for turn, batch in enumerate(random_batches(backend, _TURNS)):
        for entry, rows in zip(batch, backend.extend(batch), strict=True):
            held[entry.slot] = [*held[entry.slot][: entry.start], *entry.tokens]
            expected = reference(held[entry.slot])[entry.start + entry.logits_from :]
            comparison.add(rows, expected, f"batch {turn} of {len(batch)}, slot {entry.slot} from {entry.start} on")


def _all_slots(backend: Backend, reference: Reference, comparison: Comparison) -> None:
    texts = [_tokens(slot, 20 + 7 * slot) for slot in range(backend.slots)]
    for slot, text in enumerate(texts):
        backend.extend([Entry(slot, 0, text, len(text))])
    for width in (1, 9, 2):  # the first row of each pass follows what the slots held before it
        batch = [Entry(slot, len(text), _tokens(9 + slot, width), 0) for slot, text in enumerate(texts)]
        for entry, rows in zip(batch, backend.extend(batch), strict=True):
            expected = reference([*texts[entry.slot], *entry.tokens])[entry.start :]
            comparison.add(rows, expected, f"a pass over {width} tokens of each slot, slot {entry.slot}")


def _full_context(backend: Backend, reference: Reference, comparison: Comparison) -> None:
    text = _tokens(3, backend.context_length)
    expected = reference(text)
    slot = backend.slots - 1
    for start in range(0, len(text), backend.max_batch_tokens):
        part = text[start : start + backend.max_batch_tokens]
        (rows,) = backend.extend([Entry(slot, start, part, 0)])
        comparison.add(rows, expected[start : start + len(part)], f"from position {start} on")
    (rows,) = backend.extend([Entry(slot, len(text) - 5, text[-5:], 0)])
    comparison.add(rows, expected[-5:], "the last 5 tokens again")


def _top_logits(backend: Backend, reference: Reference, comparison: Comparison) -> None:
    if not backend.has_top_logits:
        raise CheckSkipped("this engine returns whole rows")
    text, size = _tokens(4, 30), backend.vocabulary.size
    expected = reference(text)
    (rows,) = backend.extend_top_logits([Entry(0, 0, text, 0)], [TopLogitsSpec(8, 1.0, size)])
    for position, row in enumerate(rows):
        if not isinstance(row, TopLogits):
            raise CheckFailed(f"position {position}: a row instead of top logits")
        whole, best = expected[position], np.sort(expected[position])[::-1][:8]
        comparison.add(row.logits[None], best[None], f"the greatest logits of position {position}")
        comparison.add(row.logits[None], whole[row.ids][None], f"ids of the greatest logits of position {position}")
        log_sum = np.log(np.exp(whole.astype(np.float64)).sum())
        sums = np.asarray([[row.log_sum], [log_sum]], np.float32)
        comparison.add(sums[:1], sums[1:], f"the sum of position {position}")


def _copies(backend: Backend, reference: Reference, comparison: Comparison) -> None:
    if not backend.can_copy:
        raise CheckSkipped("this engine cannot copy slots")
    text, one, other = _tokens(5, 40), _tokens(6, 6), _tokens(7, 6)
    backend.extend([Entry(0, 0, text, len(text))])
    backend.copy(0, 1, 33)
    batch = [Entry(0, 40, one, 0), Entry(1, 33, other, 0)]
    first, second = backend.extend(batch)
    comparison.add(first, reference([*text, *one])[40:], "the slot that was copied")
    comparison.add(second, reference([*text[:33], *other])[33:], "the copy")


_CHECKS: dict[str, Check] = {
    "random batches with rollbacks": _random_batches,
    "all slots in one pass": _all_slots,
    "a full context": _full_context,
    "top logits": _top_logits,
    "copied slots": _copies,
}


def splits_once(engine: str, options: LoadOptions) -> bool:
    """Whether the engine splits the model over devices, and can do so once in a process: torch on NeuronCores."""
    if engine != "torch" or (options.tensor_parallel or 1) == 1:
        return False
    return options.device == "neuron" or (options.device is None and compiles(engine, replace(options, compile=False)))


def variants(engine: str, options: LoadOptions, *, once: bool) -> list[tuple[str, dict[str, Any]]]:
    """The number types to try, with their options: float32, then the type for serving, or 16 bits.

    `once`: only what serving uses.
    """
    if engine == "llama_cpp":  # the file is in float32, but flash attention computes in 16 bits
        return [("float32", {"kv_type": "f32", "flash_attention": False}), ("float16", {"kv_type": "f16"})]
    if engine in TEST_ENGINES:
        return [("float32", {})]
    if once:
        served = options.dtype or "bfloat16"
        return [(served, {"dtype": served})]
    second = options.dtype if options.dtype not in (None, "float32") else "bfloat16"
    return [(dtype, {"dtype": dtype}) for dtype in ("float32", second or "bfloat16")]


def small_options(engine: str, options: LoadOptions) -> LoadOptions:
    """The options of serving for a tiny model, without compiled shapes that are too large for it."""
    # Wider ones would have to hold a whole batch.
    widths = tuple(width for width in options.compile_widths or () if width <= NARROW)
    spans = tuple(span for span in options.compile_spans or () if span < _CONTEXT)
    sized = replace(options, slots=_SLOTS, context_length=_CONTEXT, batch_tokens=_BATCH)
    if compiles(engine, options) and (folder := folder_of(options.compile_cache)) is not None:
        # Apart from the others: what a tiny program takes to compile says nothing about a large one.
        sized = replace(sized, compile_cache=folder / "selftest")
    return replace(sized, compile_widths=widths or None, compile_spans=spans or None)


def written(folder: Path, devices: int) -> TinyModel:
    """A tiny Llama with several key-value heads for each of `devices` devices, with weights exact in bfloat16."""
    kv_heads = math.ceil(_KV_HEADS / devices) * devices
    heads = 2 * kv_heads
    shape = {"num_key_value_heads": kv_heads, "num_attention_heads": heads, "head_dim": 16, "hidden_size": 16 * heads}
    model = TinyModel(folder, **shape, intermediate_size=32 * heads, vocab_size=512)
    for name, weight in model.weights.items():
        upper = weight.view(np.uint32) & np.uint32(0xFFFF0000)
        model.weights[name] = upper.view(np.float32).astype(np.float16).astype(np.float32)
    model.write_weights()
    return model


def _tokens(seed: int, count: int) -> list[int]:
    """Random ids of ordinary tokens."""
    ids: list[int] = np.random.default_rng(seed).integers(2, 260, count).tolist()
    return ids
