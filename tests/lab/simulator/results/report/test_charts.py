"""Charts of a simulation."""

from lab.simulator.results.measures import MEASURES
from lab.simulator.results.report.charts import over_key
from lab.simulator.results.student import Estimate

TTFT, ATTAINMENT = MEASURES["ttft_p95_ms"], MEASURES["slo_attainment"]


def test_a_measure_over_a_key_has_a_mark_for_each_value_and_a_line_for_each_interval() -> None:
    shown = over_key(TTFT, "drafters", {"": {20: Estimate(90.0, 5.0), 10: Estimate(80.0)}})
    assert shown.count("<circle") == 2 and shown.count("range") == 1
    assert "TTFT p95, ms over drafters" in shown and "time to first token" in shown and "legend" not in shown


def test_several_lines_have_a_legend_and_shares_are_in_percent() -> None:
    shown = over_key(ATTAINMENT, "gamma", {"jsq": {2: Estimate(0.5, 0.8, 0.0, 1.0)}, "<b>": {2: Estimate(0.25)}})
    assert "jsq</li>" in shown and "&lt;b&gt;</li>" in shown
    assert "SLO attainment, %" in shown and ">100<" in shown and ">120<" not in shown
