"""The code path of device neuron, run on a CPU with a strict compiler.

On TorchNeuron, a graph may take minutes to compile. Each operation outside of graphs is compiled for each new shape.
In the middle of a request, either would delay all others, so loading must meet all of them. The compiler of these tests
has TorchNeuron's name and refuses graphs with symbolic shapes and with results whose shape depends on data.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.trial.checks import random_batches
from specpair.engines.backend import Entry, TopLogitsSpec
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling.sampling import TOP_LOGITS_COUNT
from specpair.speculation.sampling.top_logits import TopLogits
from tests.models.conftest import TinyModel

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from torch._dynamo import register_backend, reset  # noqa: E402 - they need the extra
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._dynamo.backends.registry import _BACKENDS, _COMPILER_FNS  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from backends.torch import backend as torch_backend  # noqa: E402
from backends.torch.backend import TorchBackend  # noqa: E402
from backends.torch.compiling import NEURON  # noqa: E402
from backends.torch.top_logits import greatest_of, select_top_logits, warm  # noqa: E402

pytestmark = pytest.mark.engine("torch")

OPTIONS = LoadOptions(slots=3, context_length=192, batch_tokens=96, device="cpu", threads=1, compile_spans=(64, 192))
BY_INDEX = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default}
REFUSED = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A context in which `found` collects which operations run outside of compiled graphs, on which shapes, strides and
    number types. Views run no operation and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            leaves = tree_leaves((args, kwargs or {}))
            self.found.add((func, *(_layout(each) if isinstance(each, torch.Tensor) else each for each in leaves)))
        return func(*args, **(kwargs or {}))


def _layout(tensor: Any) -> Any:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


class StrictCompiler:
    """A backend of TorchDynamo that counts graphs and refuses those that neuronx-cc cannot compile."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            shapes = [each.shape for each in tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor)]
            if any(not isinstance(size, int) for shape in shapes for size in shape):
                raise RuntimeError(f"{node}: a symbolic shape")
            if node.target in BY_INDEX:  # the shape depends on data only where an index is a mask
                indices = [each.meta["val"] for each in node.args[1] if each is not None]
                if any(each.dtype == torch.bool for each in indices):
                    raise RuntimeError(f"{node.target}: indexed by a mask")
            elif REFUSED & set(getattr(node.target, "tags", ())):
                raise RuntimeError(f"{node.target}: its shape or its value depends on data")
        self.graphs.append(graph)
        run: Callable[..., Any] = graph.forward
        return run


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictCompiler]:
    """The strict compiler, under TorchNeuron's name."""
    strict = StrictCompiler()
    reset()
    register_backend(name=NEURON, compiler_fn=aot_autograd(fw_compiler=strict))
    whole = torch.compile

    def outside_of_modes(module: Any, **options: Any) -> Callable[..., Any]:
        compiled = whole(module, **options)

        def run(*inputs: Any) -> Any:
            with _disable_current_modes():  # what runs in here is one graph
                return compiled(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", outside_of_modes)
    monkeypatch.setattr(torch_backend, "NEURON_CHUNK", 2048)
    yield strict
    reset()
    for registry in (_BACKENDS, _COMPILER_FNS):
        registry.pop(NEURON, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with more ids than a selection covers on this imaginary device (see `compiler`)."""
    changes = {"num_key_value_heads": 1, "vocab_size": 3000, "num_hidden_layers": 1}
    return TinyModel(tmp_path_factory.mktemp("models") / "tiny", **changes).folder


@contextmanager
def opened(folder: Path, **changes: Any) -> Iterator[TorchBackend]:
    options = replace(OPTIONS, model=folder, **changes)
    with closing(TorchBackend(options, compiler=NEURON, has_top_logits=True)) as backend:
        yield backend


def test_nothing_is_compiled_after_loading(
    folder: Path, compiler: StrictCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a graph nor an operation outside of one, over rollbacks, copies, releases and both kinds of passes."""
    generator = np.random.default_rng(3)
    free = TorchBackend(replace(OPTIONS, model=folder, compile_spans=None))
    with caplog.at_level(logging.INFO, "specpair"), Recorder() as met, opened(folder) as neuron, closing(free):
        graphs, known = len(compiler.graphs), set(met.found)
        assert f"tiny: {graphs} programs to compile" in caplog.text
        for batch in random_batches(neuron, 60):
            wanted = [_wanted(generator, neuron.vocabulary.size) for _ in batch]
            with _disable_current_modes():
                expected = free.extend(batch)
            for rows, logits, each in zip(neuron.extend_top_logits(batch, wanted), expected, wanted, strict=True):
                assert len(rows) == len(logits)
                for row, exact in zip(rows, logits, strict=True):
                    _compare(row, exact[: each.below], each)
            source, destination = generator.permutation(3)[:2].tolist()
            turn, length = generator.integers(0, 4), neuron.length(source) // 2
            for verb, arguments in [("copy", (source, destination, length)), ("release", (source,))][turn : turn + 1]:
                getattr(neuron, verb)(*arguments)
                with _disable_current_modes():
                    getattr(free, verb)(*arguments)
        batch = next(random_batches(neuron, 1))
        whole = neuron.extend(batch)
        with _disable_current_modes():
            assert all(np.abs(a - b).max(initial=0.0) < 1e-3 for a, b in zip(whole, free.extend(batch), strict=True))
        new = met.found - known
    assert len(compiler.graphs) == graphs
    assert not new, "an operation or a shape that loading had not met"


def _compare(row: Any, exact: Any, wanted: TopLogitsSpec) -> None:
    """A row of the compiled model against that of an uncompiled one."""
    if isinstance(row, TopLogits):
        assert wanted.size is not None and len(row.ids) >= wanted.size
        assert np.abs(row.logits - exact[row.ids]).max() < 1e-3
        assert np.abs(row.logits - np.sort(exact)[::-1][: len(row.ids)]).max() < 1e-3
        row = row.whole()
    else:
        assert wanted.size is None or wanted.size > TOP_LOGITS_COUNT
    assert np.abs(row - exact).max() < 1e-3


def _wanted(generator: np.random.Generator, size: int) -> TopLogitsSpec:
    below = int(generator.integers(size // 2, size + 1))
    chosen = int(generator.choice([0, 1, 5, 1000, 1400]))
    return TopLogitsSpec(min(below, chosen) or None, float(generator.uniform(0.1, 2.0)), below)


def test_model_serves_whole_rows_where_top_logits_do_not_compile(
    folder: Path, compiler: StrictCompiler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_topk(*_: Any, **__: Any) -> None:
        raise RuntimeError("NCC_ITOPK: k of 1024 is not supported\nlong story")

    monkeypatch.setattr(torch, "topk", no_topk)
    with opened(folder, slots=1, batch_tokens=8) as backend:
        assert not backend.has_top_logits
        assert "rows are fetched instead, which takes longer: NCC_ITOPK: k of 1024 is not supported" in caplog.text
        assert caplog.text.count("NCC_ITOPK") == 1, "it is tried once"
        rows = backend.extend_top_logits([Entry(0, 0, [5, 6, 7], 1)], [TopLogitsSpec(3, 1.0, 200)])[0]
        assert isinstance(rows, np.ndarray) and rows.shape == (2, 200)


# Top logits selected on the device: their values, and that a compiling device meets no new shapes.
SLOTS, KEPT, VOCABULARY = 4, 3, 3000


def _logits(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.0, 3.0, (SLOTS, KEPT, VOCABULARY)).astype(np.float32))


def _asked(seed: int) -> tuple[list[TopLogitsSpec], list[tuple[int, slice]]]:
    """Random sizes for some tokens of some slots, in any order, and the places of these tokens."""
    generator = np.random.default_rng(seed)
    wanted, places = [], []
    for slot in generator.permutation(SLOTS)[: generator.integers(1, SLOTS + 1)].tolist():
        below = int(generator.integers(1, VOCABULARY + 1))
        chosen = int(generator.choice([0, 1, 8, 1024]))
        size = min(below, chosen) if chosen else None  # None: whole rows
        wanted.append(TopLogitsSpec(size, float(generator.uniform(0.1, 2.0)), below))
        first = int(generator.integers(0, KEPT))
        places.append((slot, slice(first, int(generator.integers(first, KEPT)) + 1)))
    return wanted, places


@pytest.mark.parametrize("seed", range(20))
def test_top_logits_equal_those_of_the_row(seed: int) -> None:
    logits, (wanted, places) = _logits(seed), _asked(seed)
    exact = logits.double().numpy()
    for rows, each, (slot, part) in zip(select_top_logits(logits, wanted, places), wanted, places, strict=True):
        for top, at in zip(rows, range(KEPT)[part], strict=True):
            numbers = exact[slot, at, : each.below]
            if each.size is None:
                assert np.array_equal(top, numbers.astype(np.float32))
                continue
            assert isinstance(top, TopLogits) and len(top.ids) >= each.size
            order = np.argsort(-numbers)[: len(top.ids)]
            assert top.ids.tolist() == order.tolist()
            assert top.log_sum == pytest.approx(np.log(np.exp(numbers / each.temperature).sum()), rel=1e-5)
            assert np.array_equal(top.whole(), numbers.astype(np.float32))


@given(
    vocabulary=st.integers(1, 300),
    chunk=st.integers(16, 120),
    size=st.sampled_from([1, 2, 8]),
    levels=st.sampled_from([2, 5, 10_000]),
    infinite=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_selection_by_chunks_equals_selection_from_the_whole_row(
    vocabulary: int, chunk: int, size: int, levels: int, infinite: float, seed: int
) -> None:
    """Also in more than two stages, with ties (few `levels`), with ids masked by -inf, and where the vocabulary is no
    multiple of the chunk."""
    generator = np.random.default_rng(seed)
    size = min(size, vocabulary)
    numbers = torch.from_numpy(generator.integers(0, levels, (2, 3, vocabulary)).astype(np.float32))
    numbers[:, :, int(vocabulary * infinite) :] = -torch.inf
    expected, _ = greatest_of(numbers, size, None)
    greatest, at = greatest_of(numbers, size, chunk)
    assert torch.equal(greatest, expected)
    finite = greatest > -torch.inf
    for row, known in zip(at.flatten(0, 1), finite.flatten(0, 1), strict=True):
        assert len(set(row[known].tolist())) == int(known.sum()), "each place once"
    assert torch.equal(numbers.gather(-1, at.clamp(max=vocabulary - 1))[finite], greatest[finite])


def test_more_than_was_compiled_ahead_gives_whole_rows() -> None:
    """In one pass with others, which keep their top logits."""
    wanted = [TopLogitsSpec(2000, 1.0, 2500), TopLogitsSpec(5, 1.0, VOCABULARY)]
    with Recorder() as at_first:
        assert warm(_logits(0), VOCABULARY, 2048, "tiny")
    with Recorder() as later:
        whole, top = select_top_logits(_logits(7), wanted, [(0, slice(0, 2)), (1, slice(0, 2))], 2048)
    assert later.found <= at_first.found
    assert isinstance(whole, np.ndarray) and np.array_equal(whole, _logits(7)[0, :2, :2500].numpy())
    assert all(isinstance(each, TopLogits) for each in top)
    assert isinstance(select_top_logits(_logits(7), wanted[:1], [(0, slice(0, 1))])[0][0], TopLogits)


def test_selection_uses_only_shapes_seen_at_warm_up() -> None:
    with Recorder() as at_first:
        assert warm(_logits(0), VOCABULARY, None, "tiny")
    for seed in range(20):
        logits, wanted = _logits(seed), _asked(seed)
        with Recorder() as later:
            for rows in select_top_logits(logits, *wanted):
                if isinstance(rows[0], TopLogits):
                    rows[0].whole()
        assert later.found <= at_first.found
    with Recorder() as beyond:
        select_top_logits(_logits(0), [TopLogitsSpec(2000, 1.0, VOCABULARY)], [(0, slice(0, 1))])
    assert not beyond.found <= at_first.found, "a new shape is indeed found"
