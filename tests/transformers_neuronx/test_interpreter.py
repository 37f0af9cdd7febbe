"""The interpreter itself: what programs compute, how cores share the work, and what is left to chance."""

from typing import Any

import numpy as np
import pytest

from tests.transformers_neuronx.program import TYPES, HloScribe, Program

pytestmark = pytest.mark.engine("torch")


def results(write: Any, *parameters: Any, seed: int = 0) -> list[Any]:
    """What the program returns, which has been in bytes. Each parameter is a list of what the cores hold."""
    import torch

    from tests.transformers_neuronx.operations import run

    program = Program.parsed(HloScribe(None)(write).module_proto.SerializeToString())
    types = [getattr(torch, TYPES[each.element_type]) for each in program.parameters]
    given = [torch.tensor(each, dtype=dtype) for each, dtype in zip(parameters, types, strict=True)]
    values = run(program.operations, given, np.random.default_rng(seed))
    return [values[number].tolist() for number in program.results]


def add(scribe: Any) -> Any:
    return scribe.f32.Add(scribe.f32.Parameter(parameter_number=0), scribe.f32.Parameter(parameter_number=1))


def second(scribe: Any) -> Any:
    scribe.f32.Parameter(parameter_number=0)
    return scribe.f32.Parameter(parameter_number=1)


def test_matrices_are_multiplied_core_by_core() -> None:
    def write(scribe: Any) -> Any:
        left, right = (scribe.f32[2, 2].Parameter(parameter_number=number) for number in range(2))
        numbers = {"lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [1]}
        return scribe.f32[2, 2].Dot(left, right, dot_dimension_numbers=numbers)

    random = np.random.default_rng(1)
    left, right = random.normal(size=(2, 3, 2, 2)).astype(np.float32)
    (got,) = results(write, left.tolist(), right.tolist())
    assert np.allclose(got, np.einsum("cij,cki->cjk", left, right), atol=1e-5)


def test_cores_add_and_gather_in_their_groups() -> None:
    def write(scribe: Any) -> Any:
        x = scribe.f32[2].Parameter(parameter_number=0)
        groups = [[0, 1], [2, 3]]
        total = scribe.f32[2].AllReduce(x, replica_groups=groups, to_apply=add)
        every = scribe.f32[4].AllGather(x, dimensions=[0], replica_groups=groups)
        return scribe.tuple(total, every).Tuple(total, every)

    total, every = results(write, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    assert total == [[4, 6], [4, 6], [12, 14], [12, 14]]
    assert every == [[1, 2, 3, 4]] * 2 + [[5, 6, 7, 8]] * 2


def scattered(scribe: Any) -> Any:
    x = scribe.f32[4].Parameter(parameter_number=0)
    index, updates = scribe.s32[3].Parameter(parameter_number=1), scribe.f32[3].Parameter(parameter_number=2)
    numbers = {"inserted_window_dims": [0]}
    return scribe.f32[4].Scatter(x, index, updates, scatter_dimension_numbers=numbers, to_apply=second)


def test_any_of_several_updates_of_one_cell_stays() -> None:
    seen = set()
    for seed in range(20):
        ((got,),) = results(scattered, [[0.0] * 4], [[1, 1, 3]], [[5.0, 6.0, 7.0]], seed=seed)
        assert got[0] == got[2] == 0 and got[3] == 7
        seen.add(got[1])
    assert seen == {5.0, 6.0}


@pytest.mark.parametrize("index", [-1, 4])
def test_index_out_of_range_is_refused(index: int) -> None:
    with pytest.raises(IndexError):
        results(scattered, [[0.0] * 4], [[0, 1, index]], [[5.0, 6.0, 7.0]])


def test_wrong_shapes_and_unknown_operations_are_refused() -> None:
    def reshaped(scribe: Any) -> Any:
        return scribe.f32[3].Reshape(scribe.f32[2, 2].Parameter(parameter_number=0))

    def unknown(scribe: Any) -> Any:
        return scribe.f32[2, 2].Cholesky(scribe.f32[2, 2].Parameter(parameter_number=0))

    with pytest.raises(RuntimeError, match="invalid for input of size"):
        results(reshaped, [[[1.0, 2.0], [3.0, 4.0]]])
    with pytest.raises(NotImplementedError, match="Cholesky is not in the interpreter"):
        results(unknown, [[[1.0, 2.0], [3.0, 4.0]]])


def test_equal_programs_have_equal_bytes() -> None:
    def sized(count: int) -> bytes:
        def write(scribe: Any) -> Any:
            return scribe.f32[count].Iota(dimensions=[0])

        return HloScribe(None)(write).module_proto.SerializeToString()

    assert sized(3) == sized(3) != sized(4)
