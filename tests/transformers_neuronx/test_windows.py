"""Wide passes that continue a text: of every token's logits, or of the last token's only."""

from typing import Any

import numpy as np
import pytest

from tests.conftest import WORST
from tests.transformers_neuronx.conftest import Make
from tests.transformers_neuronx.loaded import IDS

pytestmark = pytest.mark.engine("tnx")


@pytest.mark.parametrize("cores", [1, 2])
def test_window_returns_the_logits_of_one_of_its_tokens(direct: Make, record_property: Any, cores: int) -> None:
    """The index of that token counts from the window's first token on, not from the text's."""
    model = direct(cells=1024, buckets=[128, 1024], windows=[128, 512], cores=cores)
    model.prompt(1, IDS[:10])
    wanted = model.expected(IDS[:700])
    worst = 0.0
    for start, width, last in ((10, 128, 127), (10, 128, 0), (10, 128, 5), (138, 512, 511), (600, 128, 40)):
        logits = model.window(1, IDS[start : start + width], range(start, start + width), last)
        assert logits.shape == (264, 1, 1)
        worst = max(worst, float(np.abs(logits[:, 0, 0].numpy() - wanted[start + last]).max()))
    after = model.speculate([1], [IDS[690:694]], [range(690, 694)])
    worst = max(worst, float(np.abs(after[:, :, 0] - wanted[690:694]).max()))
    record_property(WORST, worst)
    assert worst < 2e-4


def test_short_window_is_padded_behind_its_tokens(direct: Make) -> None:
    model = direct(windows=[128])
    model.prompt(1, IDS[:200])
    cells = [min(200 + offset, 255) for offset in range(128)]
    logits = model.window(1, [*IDS[200:240], *[0] * 88], cells, 39)
    wanted = model.expected(IDS[:244])
    assert np.abs(logits[:, 0, 0].numpy() - wanted[239]).max() < 2e-4
    after = model.speculate([1], [IDS[240:244]], [range(240, 244)])
    assert np.abs(after[:, :, 0] - wanted[240:]).max() < 2e-4


def test_window_runs_on_the_executor(direct: Make) -> None:
    """As prompts do. With it, a program can be told to return nothing."""
    model = direct(windows=[128])
    head = model.model.decoder_lm_head_for_window_context[128]
    model.prompt(1, IDS[:10])
    wanted = model.window(1, IDS[10:138], range(10, 138), 127)
    head.use_executor = True
    head.enable_executor()
    assert bool((model.window(1, IDS[10:138], range(10, 138), 127) == wanted).all())
    head.return_ranks = 0
    assert len(model.window(1, IDS[10:138], range(10, 138), 127)) == 0
    after = model.speculate([1], [IDS[138:142]], [range(138, 142)])
    assert np.abs(after[:, :, 0] - model.expected(IDS[:142])[138:]).max() < 2e-4


def test_speculation_may_be_wider_than_the_narrowest_prompt(direct: Make) -> None:
    model = direct(cells=512, buckets=[128, 512], lengths=[4, 128, 200])
    model.prompt(1, IDS[:10])
    wanted = model.expected(IDS[:400])
    for start, width in ((10, 128), (138, 200), (338, 4), (50, 200)):
        got = model.speculate([1], [IDS[start : start + width]], [range(start, start + width)])
        assert np.abs(got[:, :, 0] - wanted[start : start + width]).max() < 2e-4


def test_no_prompt_need_be_as_wide_as_the_cache(direct: Make, record_property: Any) -> None:
    """If the caller does all the padding: the library's own goes to the last cell of the widest prompt."""
    model = direct(cells=512, buckets=[128], lengths=[4, 16, 63])
    random = np.random.default_rng(2)
    text: list[int] = []
    worst = 0.0
    for number in range(40):
        start = len(text) - int(random.integers(0, min(len(text), 6) + 1)) if number % 10 else 0
        if start == 0:
            text = random.integers(2, 260, int(random.integers(2, 128))).tolist()
            got = model.prompt(2, text)[None]
        else:
            width = int(random.choice([4, 16, 63]))
            new = random.integers(2, 260, int(random.integers(1, width + 1))).tolist()
            cells = [min(start + offset, 511) for offset in range(width)]
            text = [*text[:start], *new]
            got = model.speculate([2], [[*new, *[0] * (width - len(new))]], [cells])[: len(new), :, 0]
        worst = max(worst, float(np.abs(got - model.expected(text)[-len(got) :]).max()))
    record_property(WORST, worst)
    assert worst < 2e-4
