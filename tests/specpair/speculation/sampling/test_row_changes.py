"""Logit processors equal their definition in float64, and follow a text through drafts that are taken back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.sampling.processors import LowerProbable
from specpair.speculation.sampling.sampling import Logits, Sampling
from specpair.speculation.sampling.top_logits import top_logits_of
from tests.specpair.speculation import processed
from tests.specpair.speculation.rows import logits_of

SIZE = 40
ENDS = {5, 30}
ROW = logits_of("normal", SIZE, 1)
IDS = st.integers(0, SIZE - 1)
TEXTS = st.lists(IDS, max_size=30)
PENALTIES = st.floats(-2.0, 2.0)
ROWS = st.builds(logits_of, st.sampled_from(["normal", "ties", "peaked", "masked"]), st.just(SIZE), st.integers(0, 999))
TEMPERATURES = st.sampled_from([0.0, 0.3, 1.0, 4.0])
ALONE: dict[str, dict[str, st.SearchStrategy[object]]] = {
    "bias": {"logit_bias": st.dictionaries(IDS, st.floats(-100, 100), max_size=8)},
    "repetition": {"repetition_penalty": st.floats(0.01, 100.0)},
    "frequency": {"frequency_penalty": PENALTIES},
    "presence": {"presence_penalty": PENALTIES},
    "min_p": {"min_p": st.floats(0.0, 1.0)},
    "min_tokens": {"min_tokens": st.integers(0, 30)},
}
ALONE["together"] = {name: values for each in list(ALONE.values()) for name, values in each.items()}


def check(row: Logits, sampling: Sampling, prompt: list[int], output: list[int]) -> None:
    """The processed row is the reference's. At the edge of min_p, rounding decides."""
    given_row = row.copy()
    processors = processed.text_processors(sampling, len(prompt), ends=ENDS)
    if processors is None:
        assert row is given_row or np.array_equal(processed.process(row, sampling, prompt, output, ENDS), row)
        return
    processors.commit([*prompt, *output])
    found = processors.process(row)
    assert found.dtype == np.float32 and np.array_equal(row, given_row), "the engine's own row stays as it is"
    whole = processed.process(row, replace(sampling, min_p=0.0), prompt, output, ENDS)
    expected = processed.process(row, sampling, prompt, output, ENDS)
    masked = np.isneginf(found)
    assert np.allclose(found[~masked], whole[~masked], rtol=1e-5, atol=1e-4)
    differs = masked != np.isneginf(expected)
    edge = whole.max() + sampling.temperature * np.log(sampling.min_p) if sampling.min_p else -np.inf
    assert np.allclose(whole[differs], edge, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ALONE)
@given(data=st.data(), row=ROWS, prompt=TEXTS, output=TEXTS, temperature=TEMPERATURES)
def test_each_processor_equals_its_definition(
    name: str, data: st.DataObject, row: Logits, prompt: list[int], output: list[int], temperature: float
) -> None:
    settings = {field: data.draw(values) for field, values in ALONE[name].items()}
    check(row, Sampling(1, temperature, **settings), prompt, output)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", processed.SETTINGS.values(), ids=processed.SETTINGS)
@given(
    prompt=TEXTS,
    output=TEXTS,
    parts=st.lists(st.integers(0, 30), max_size=4),
    drafts=st.lists(st.lists(IDS, max_size=6), max_size=6),
)
def test_rows_do_not_depend_on_the_drafts_tried_before(
    sampling: Sampling, prompt: list[int], output: list[int], parts: list[int], drafts: list[list[int]]
) -> None:
    processors = processed.text_processors(sampling, len(prompt), ends=ENDS)
    assert processors is not None
    for end in (*sorted(parts), len(output)):
        processors.commit([*prompt, *output[:end]])
        for draft in (*drafts, []):
            fresh = processed.text_processors(sampling, len(prompt), ends=ENDS)
            assert fresh is not None
            fresh.commit([*prompt, *output[:end], *draft])
            assert np.array_equal(processors.process(ROW, draft), fresh.process(ROW))


def test_ids_beyond_the_row_are_left_out() -> None:
    """A draft model's vocabulary may be smaller than the target's."""
    sampling = Sampling(
        0, 1.0, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.5, logit_bias={3: 2.0, 500: -3.0}
    )
    processors = processed.text_processors(sampling, 3, SIZE)
    assert processors is not None
    processors.commit([1, 900, 2, 7, 700, 7])
    inside = replace(sampling, logit_bias={3: 2.0})
    found = processors.process(ROW, [800, 9])
    assert np.allclose(found, processed.process(ROW, inside, [1, 2], [7, 7, 9]), atol=1e-5)


def test_top_logits_are_processed_as_whole_rows() -> None:
    sampling = processed.SETTINGS["all"]
    one, other = (processed.text_processors(sampling, 0) for _ in range(2))
    assert one is not None and other is not None
    top = top_logits_of(ROW, 4, 1.1)
    assert np.array_equal(one.process(top, [2, 2]), other.process(ROW, [2, 2]))
    assert np.array_equal(top.whole(), ROW)


@given(st.floats(0.0, 1.0, exclude_min=True), st.sampled_from([0.05, 1.0, 7.0]), st.integers(0, 10_000))
def test_min_p_decides_in_float64(min_p: float, temperature: float, seed: int) -> None:
    row = logits_of("normal", 200, seed)
    kept = row.astype(np.float64) >= float(row.max()) + temperature * np.log(min_p)
    masked = row.copy()
    LowerProbable(min_p, temperature).process(masked)
    assert np.array_equal(masked > -np.inf, kept)
    assert np.array_equal(masked[kept], row[kept])
    assert kept[row.argmax()], "the likeliest token always stays"


def test_min_p_leaves_a_row_without_a_finite_maximum_to_the_draw() -> None:
    row = np.full(4, np.nan, np.float32)
    LowerProbable(0.5, 1.0).process(row)
    assert np.isnan(row).all()
