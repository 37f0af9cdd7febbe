"""The target's own head in virtual time: in rounds of the server, in self-continuation, and in mode auto."""

from typing import Any

import pytest

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.record import Conversation, Record, Turn
from tests.lab.simulator.fleets import DRAFT, TARGET, configured, link, run

HEAD = {"depth": 3, "step_ms": 1.5, "agreement": 0.9}


def _written(mode: str, texts: int = 1, output: int = 120, rtt_ms: float = 10, **verifier: Any) -> list[Record]:
    """Texts that are asked for at once of one verifier, which has no draft model unless `verifier` says so."""
    kind = {"name": "a", "draft": None, **verifier}
    laptop = {"name": "laptop", "cost": DRAFT | {"decode_ms": 200}}  # too slow to draft
    setting = configured(mode, [kind], [laptop], connections=[link(rtt_ms)])
    records, _ = run(setting, (Conversation(f"c{number}", 0.0, (Turn(20, output),)) for number in range(texts)))
    assert [len(each.times) for each in records] == [output] * texts
    return records


@pytest.mark.parametrize("texts", [1, 4])
@pytest.mark.parametrize("mode", ["fused", "remote", "auto"])
def test_a_head_makes_texts_faster(mode: str, texts: int) -> None:
    plain, head = _written("target", texts), _written(mode, texts, head=HEAD)
    assert max(each.end for each in head) < 0.6 * max(each.end for each in plain)


def test_a_head_that_is_rarely_right_or_slow_costs_next_to_nothing() -> None:
    [plain] = _written("remote")
    for change in ({"agreement": 0.0}, {"step_ms": 60}):
        [head] = _written("remote", head={**HEAD, **change})
        assert head.end < 1.1 * plain.end


def test_head_and_draft_model_together_are_faster_than_each() -> None:
    """The head drafts the first tokens, the model goes on."""
    model = {"draft": {"cost": {"law": "linear", "decode_ms": 2.5}, "agreement": 0.9}}
    [both], [alone], [head] = (
        _written("fused", 1, 400, **each) for each in ({"head": HEAD, **model}, model, {"head": HEAD})
    )
    assert both.end < 0.97 * min(alone.end, head.end)


def test_the_step_of_a_head_is_a_layer_and_the_lm_head_of_the_model() -> None:
    named = {"name": "a", "cost": None, "model": "llama-3.1-8b", "device": "h100-sxm", "draft": None}
    kind = configured("fused", [named | {"head": {"agreement": 0.9}}]).devices.verifiers[0]
    assert kind.head_cost is not None
    share = kind.head_cost.seconds([(1, 500)]) / kind.pass_cost.seconds([(1, 500)])
    layer, lm_head, whole = 218e6, 525e6, 7.5e9  # weights
    assert share == pytest.approx((layer + lm_head) / whole, rel=0.1)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"agreement": 0.9}, "a: give the head's step_ms, as the verifier has no model"),
        ({"step_ms": 1.5}, "agreement"),
        ({"step_ms": 0, "agreement": 0.9}, "step_ms"),
    ],
)
def test_a_head_without_a_time_or_an_agreement_is_refused(head: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured("fused", [{"name": "a", "cost": TARGET, "head": head}])


def test_fused_needs_something_that_drafts() -> None:
    with pytest.raises(ValueError, match="a has neither"):
        configured("fused", [{"name": "a", "draft": None}])
    assert isinstance(configured("auto", [{"name": "a", "draft": None}]), Configuration)
