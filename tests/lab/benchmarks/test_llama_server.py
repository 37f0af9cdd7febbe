"""llama-server against ours: its replies, its settings, and the table of ratios. Nothing is compiled here."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.metrics.statistics import Stats
from lab.benchmarks.harness.texts import Written
from lab.benchmarks.llama_server import build
from lab.benchmarks.llama_server.bound import bound, either_agrees
from lab.benchmarks.llama_server.server import UNTOLD, Completed, ServerFailed, completed, events
from lab.benchmarks.llama_server.settings import ALONE, settings, shared_flags
from lab.benchmarks.llama_server.summary import cell, clocks, conclusion, difference, draw, table
from specpair.speculation.sampling.sampling import Sampling

DRAFTERS = {"twin": Path("twin.gguf"), "small": Path("small.gguf")}
OURS = {"remote": "ours, remote, twin"}


def told(tokens: list[int], predicted: int) -> dict[str, Any]:
    return {"tokens": tokens, "tokens_predicted": predicted, "stop": False}


def last(predicted: int, ms: float, stop_type: str = "limit", **timings: int) -> dict[str, Any]:
    times = {"predicted_n": predicted, "predicted_ms": ms, **timings}
    return {"tokens": [], "tokens_predicted": predicted, "stop": True, "stop_type": stop_type, "timings": times}


def test_a_text_is_timed_by_the_server_and_by_the_clock() -> None:
    arrived = [(2.0, told([5], 1)), (2.5, told([6], 2)), (4.0, told([7], 3)), (9.0, last(3, 1990.0, draft_n=4))]
    text = completed(1.0, arrived)
    assert (text.tokens, text.ttft_ms, text.seconds, text.clock) == ([5, 6, 7], 1000.0, 1.99, 2.0)
    assert text.rate == pytest.approx(2 / 1.99), "the first token came with the prompt"
    assert (text.stats.drafted, text.stats.accepted, text.text) == (4, 0, [5, 6, 7])


def test_tokens_that_were_not_told_are_counted() -> None:
    text = completed(0.0, [(1.0, told([5], 1)), (2.0, told([8], 4)), (2.0, last(5, 1000.0))])
    assert text.tokens == [5, UNTOLD, UNTOLD, 8, UNTOLD]


def test_an_end_token_counts_for_the_rate_and_is_no_text() -> None:
    text = completed(0.0, [(1.0, told([5], 1)), (2.0, told([2], 2)), (2.0, last(2, 1000.0, "eos"))])
    assert (text.rate, text.text) == (1.0, [5])
    assert difference(text, Written([5], 0.0, 1.0)) is None


def test_events_are_read_and_errors_raised() -> None:
    lines = ["", 'data: {"tokens": [1]}', ": comment", "data: [DONE]"]
    assert list(events(lines)) == [{"tokens": [1]}]
    for line in ('error: {"code": 500}', "data: " + json.dumps({"error": {"code": 500}})):
        with pytest.raises(ServerFailed, match="500"):
            list(events([line]))
    with pytest.raises(ServerFailed, match="without its timings"):
        completed(0.0, [(1.0, told([5], 1))])


def test_texts_differ_only_where_both_tokens_are_known() -> None:
    one = Written([1, 2, 3], 0.0, 1.0)
    assert difference(one, one) is None
    assert difference(one, Written([1, UNTOLD, 3], 0.0, 1.0)) is None
    assert difference(one, Written([1, UNTOLD, 4], 0.0, 1.0)) == 2
    assert difference(one, Written([1, 2], 0.0, 1.0)) == 2


def test_every_setting_is_named_once_and_has_its_draft_model() -> None:
    made = settings(DRAFTERS, [8, 3])
    names = [each.name for each in made]
    assert len(set(names)) == len(names) and names[0] == ALONE and not made[0].speculates
    kinds = {kind for each in made if each.kind == "n-gram" for kind in each.flags[1].split(",")}
    assert kinds == {"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"}
    for each in made[1:]:
        assert each.speculates and "--spec-type" in each.flags
        assert ("--spec-draft-model" in each.flags) == (each.drafter is not None)
        if each.drafter:
            assert str(DRAFTERS[each.drafter]) in each.flags and each.name.endswith(each.drafter)
    assert [name.removesuffix(", twin") for name in names if name.endswith("twin")] == [
        *("draft-simple 3", "draft-simple 8", "draft-simple 8, p-min 0.5", "draft-simple 8, p-min 0.75"),
        *("ngram-map-k 3/8, draft-simple 3", "ngram-map-k 3/8, draft-simple 8, p-min 0.75"),
    ]
    flags = shared_flags(Path("target.gguf"), 512, 2)
    assert flags[flags.index("--threads") + 1] == flags[flags.index("--threads-batch") + 1] == "2"


def text(seconds: float, accepted: int = 0, drafted: int = 0) -> Completed:
    return Completed([1, 2, 3], 0.0, seconds, Stats(drafted=drafted, accepted=accepted), clock=1.01 * seconds)


def test_ratios_are_those_of_all_tokens_over_all_seconds(tmp_path: Path) -> None:
    made = settings(DRAFTERS, [2])
    texts = {each.name: [text(1.0), text(3.0)] for each in made}
    for each in made[1:]:
        texts[each.name] = [text(2.0), text(4.0)]
    texts["ngram-cache"] = [text(1.0, 1, 4), text(2.0, 1, 4)]
    texts["draft-simple 2, twin"] = [text(0.5), text(1.5)]
    texts["draft-simple 2, small"] = [text(0.1), text(0.1)]
    ours = {OURS["remote"]: [Written([1, 2, 4], 0.0, 0.8), Written([1, 2, 3], 0.0, 0.8)]}
    found = cell({**texts, **ours}, made, "twin", 0.0, OURS, 3.5)
    assert found.by_n_grams == pytest.approx(4 / 3)
    assert (found.by_draft_model, found.best, found.theirs) == (2.0, "draft-simple 2, twin", 2.0)
    assert dict(found.ours) == pytest.approx({"remote": 2.5})
    assert conclusion([found])[-1].split("  ")[-1] == "remote 1.25 (its best: draft-simple 2, twin)"
    lines = {line.split("  ")[1]: line for line in table({**texts, **ours}, compared=True)}
    assert "1.33x alone" in lines["ngram-cache"] and "acceptance rate  25% of 8" in lines["ngram-cache"]
    assert lines[OURS["remote"]].endswith("nothing drafted  1 of 2 texts as alone")
    assert clocks({**texts, **ours}) == "client's clock over llama-server's own: 1.010 to 1.010"
    pytest.importorskip("matplotlib")
    draw([found, found], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_the_bound_counts_a_pass_for_each_token_that_neither_draft_has() -> None:
    target = ScriptedBackend(Script(agreement=0.6))
    tokens = target_text(ScriptedBackend(Script()), [256, 1, 2, 3], 40)
    agrees = either_agrees(target, [256, 1, 2, 3], tokens, Sampling())
    assert 10 < sum(agrees) < 40
    assert either_agrees(ScriptedBackend(Script()), [256, 1, 2, 3], tokens, Sampling()) == [True] * 40
    texts = [([256, 1, 2, 3], tokens)]
    level, steep = [20.0, 20.0], [20.0, 40.0, 60.0]
    misses = agrees[1:].count(False)
    assert bound(target, texts, 0.0, level) == pytest.approx(39 / (misses + agrees[-1]))
    assert 1.0 <= bound(target, texts, 0.0, steep) < bound(target, texts, 0.0, level)


def test_lookup_counts_for_the_bound_where_the_draft_model_is_wrong() -> None:
    other = ScriptedBackend(Script(agreement=0.0))
    tokens = [7, 8, 9, 10, 11, 12] * 4
    agrees = either_agrees(other, [256], tokens, Sampling())
    assert not any(agrees[:6]) and all(agrees[12:])


def target_text(target: ScriptedBackend, prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(target.logits_after(tokens).argmax()))
    return tokens[len(prompt) :]


def test_llama_server_alone_may_be_its_best() -> None:
    made = settings(DRAFTERS, [2])
    texts = {each.name: [text(1.0 if each.name == ALONE else 2.0)] for each in made}
    texts |= {OURS["remote"]: [text(0.5)]}
    found = cell(texts, made, "small", 0.8, OURS, 1.0)
    assert (found.theirs, found.best, found.by_draft_model) == (1.0, ALONE, 0.5)


def test_the_commit_is_the_newest_in_the_list_of_changes(tmp_path: Path) -> None:
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("## [2]\n- feat: update llama.cpp to ggml-org/llama.cpp@0c1e57098\n- llama.cpp@4df29be4f\n")
    assert build.commit(tmp_path) == "0c1e57098"
    changes.write_text("nothing\n")
    assert build.commit(tmp_path) == "unknown"


def test_without_cmake_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NotBuilt, match=r"there is no cmake .* apt install cmake"):
        build.built()
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_fails_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(build.NotBuilt, match=r"no compiler\nsh ended with status 3"):
        build.run_logged(log, ["sh", "-c", "echo no compiler; exit 3"])
