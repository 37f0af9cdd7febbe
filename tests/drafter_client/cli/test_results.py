"""Results files: after any interruption the next run produces the same file; foreign files are never changed."""

import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.cli.prompts import FilePrompt
from drafter_client.cli.results import ModelNames, Result, ResultsFile, encode, failed, finished, latest, parse
from drafter_client.errors import BadOutput, BadPrompt, DrafterError, ForeignOutput, OtherResults, OutputBusy
from drafter_client.options import Mode, Options
from drafter_client.statistics import Stats
from specpair import shared_files
from specpair.protocol.errors import PromptTooLong
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy

MODELS = ModelNames("big-7b", "small-1b")
PROMPTS = [FilePrompt(at, "abcdé"[at], Options(temperature=0.5), id="vwxyz"[at]) for at in range(5)]


def _text(at: int) -> Result:
    stats = Stats(
        model=MODELS.target, token_ids=list(range(at + 1)), ttft=0.001, total_time=0.002, finish_reason="length"
    )
    return finished(PROMPTS[at], MODELS, stats.report(f"text\n{at} \u2028 é"))


def _error(at: int) -> Result:
    return failed(PROMPTS[at], MODELS, PromptTooLong("the prompt has 9 tokens"))


WHOLE = b"".join(encode(_text(at)) for at in range(5))


def _resume(path: Path, results: Sequence[Result] = tuple(map(_text, range(5)))) -> list[int]:
    """Run to the end with the given results. Returns the indices of the prompts that were tried."""
    with ResultsFile(path) as file:
        found = file.begin(PROMPTS, MODELS)
        todo = [result for result in results if result.index not in found or found[result.index].failed]
        for result in todo:
            file.add(result)
        file.put_in_order()
    return [result.index for result in todo]


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)), st.data())
def test_from_every_cut_the_next_run_produces_the_same_file(
    order: list[int], errors: set[int], data: st.DataObject
) -> None:
    """Some prompts fail, some are written twice; then the file is cut anywhere."""
    left = b"".join(encode(_error(at) if at in errors else _text(at)) for at in [*order, *order[:2]])
    left = left[: data.draw(st.integers(0, len(left)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        path.write_bytes(left)
        finished_before = {result.index for result in parse(left, "r")[0] if not result.failed}
        assert set(_resume(path)) == set(range(5)) - finished_before
        assert path.read_bytes() == WHOLE
        assert _resume(path) == [] and path.read_bytes() == WHOLE
        assert os.listdir(folder) == ["results.jsonl"]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_the_last_finished_line_counts_or_else_the_last(came: list[tuple[int, bool]]) -> None:
    results = [Result(at, {"error": {}, "n": n} if bad else {"n": n}) for n, (at, bad) in enumerate(came)]
    chosen = latest(results)
    assert list(chosen) == sorted({at for at, _ in came})
    for at, result in chosen.items():
        lines = [each for each in results if each.index == at]
        assert result == next((each for each in reversed(lines) if not each.failed), lines[-1])


def test_an_error_keeps_its_name() -> None:
    assert _error(0).line["error"] == {
        "code": "prompt_too_long",
        "type": "invalid_request_error",
        "message": "the prompt has 9 tokens",
    }
    drafter_error = failed(PROMPTS[0], MODELS, BadPrompt("empty"))
    assert drafter_error.line["error"] == {"code": "bad_prompt", "type": "drafter_error", "message": "empty"}
    assert drafter_error.failed and not _text(0).failed


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"hello", 1),
        (b"hello\n", 1),
        (b"\n", 1),
        (b'{"prompt": "a"}\n', 1),
        (encode(_text(0)) + b"note\n", 2),
        (encode(_text(0)) + b"note", 2),
        (encode(_text(0)) + b"\n", 2),
        (encode(_text(0))[:80] + b"\n" + encode(_text(1)), 1),
        (encode(_text(0)).replace(b"specpair-result-1", b"specpair-result-2"), 1),
        (encode(_text(0)).replace(b'"asked"', b'"bsked"'), 1),
        (encode(_text(0)).replace(b'"rounds"', b'"sounds"'), 1),
        (encode(_text(0)).replace(b'"model"', b'"moral"'), 1),
        (encode(_text(0)).replace(b'"draft_model": ""', b'"draft_model": 0'), 1),
        (encode(_text(0)).replace(b'"generated_tokens": 1', b'"generated_tokens": true'), 1),
        (encode(_text(0)).replace(b'"index": 0', b'"index": "0"'), 1),
        (b'{"format": "specpair-result-1", "index": ' + b"[" * 100_000 + b"\n", 1),
        (b"\x00\xff\n", 1),
    ],
    ids=range(17),
)
def test_a_foreign_file_is_refused_and_not_changed(tmp_path: Path, data: bytes, line: int) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(data)
    with pytest.raises(ForeignOutput) as raised:
        ResultsFile(path)
    message = "this is no result of --prompt-file: the file is left as it is, give another --output"
    assert str(raised.value) == f"{path}, line {line}: {message}"
    assert path.read_bytes() == data


def _prompts_with(**changes: Any) -> list[FilePrompt]:
    return [replace(prompt, options=replace(prompt.options, **changes)) for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("prompts", "models", "what"),
    [
        (_prompts_with(max_tokens=3), MODELS, "prompt 2 had other settings: max_tokens was 128 and is 3"),
        (
            _prompts_with(seed=4, mode=Mode.TARGET),
            MODELS,
            'prompt 2 had other settings: seed was null and is 4, mode was "auto" and is "target"',
        ),
        (
            PROMPTS,
            MODELS._replace(target="other-8b"),
            'prompt 2 had other settings: target was "big-7b" and is "other-8b"',
        ),
        ([replace(each, chat=True, system="s") for each in PROMPTS], MODELS, "prompt 2 had other settings: chat was f"),
        (
            [replace(each, text=f"{each.text}!") for each in PROMPTS],
            MODELS,
            'the prompt of prompt 2 was "b" and is "b!"',
        ),
        ([replace(each, id=None) for each in PROMPTS], MODELS, 'the id of prompt 2 was "w" and is null'),
        (PROMPTS[:1], MODELS, "prompt 2 of a file that now has 1"),
    ],
    ids=["tokens", "seed and mode", "target", "chat", "prompt", "id", "fewer"],
)
@pytest.mark.parametrize("line", [_text(1), _error(1)], ids=["text", "error"])
def test_results_of_another_run_are_refused_and_not_changed(
    tmp_path: Path, line: Result, prompts: list[FilePrompt], models: ModelNames, what: str
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(encode(line) + b'{"for')
    with ResultsFile(path) as file, pytest.raises(OtherResults) as raised:
        file.begin(prompts, models)
    assert str(raised.value).startswith(f"{path} holds the results of another run: {what}")
    assert str(raised.value).endswith(". Give another --output, or the settings of that run")
    assert path.read_bytes() == encode(line) + b'{"for'


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    ("mode", "others"),
    [
        (Mode.REMOTE, [ModelNames("big-7b", "other-1b", "there-1b")]),
        (Mode.FUSED, [ModelNames("big-7b", "here-1b", "other-1b")]),
        (
            Mode.AUTO,
            [ModelNames("big-7b", "other-1b", "there-1b")],
        ),  # remote where the text depends on drafts
        (Mode.TARGET, []),
    ],
    ids=str,
)
def test_the_draft_models_matter_where_the_text_depends_on_them(
    tmp_path: Path, strategy: Strategy, mode: Mode, others: list[ModelNames]
) -> None:
    drafts = ModelNames("big-7b", "here-1b", "there-1b")
    options = Options(mode=mode, strategy=strategy, threshold=0.3 if strategy is Strategy.THRESHOLD else None)
    prompts = [FilePrompt(0, "a", options)]
    path = tmp_path / "r.jsonl"
    with ResultsFile(path) as file:
        file.begin(prompts, drafts)
        file.add(failed(prompts[0], drafts, BadPrompt("empty")))
    depends = strategy not in DRAFTER_INVARIANT
    for models in (ModelNames("big-7b", "x", "y"), *others):
        with ResultsFile(path) as file:
            if depends and mode is not Mode.TARGET:
                with pytest.raises(OtherResults, match="prompt 1 had other settings: drafting was "):
                    file.begin(prompts, models)
            else:
                assert list(file.begin(prompts, models)) == [0]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_a_second_run_is_refused_while_one_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for begun in (False, True):
        with ResultsFile(path) as file:
            if begun:
                file.begin(PROMPTS, MODELS)
                file.add(_text(3))
            with pytest.raises(OutputBusy) as raised:
                ResultsFile(path)
            assert str(raised.value) == f"another run writes to {path}: wait for its end, or give another --output"
            if begun:
                file.add(_text(2))
    assert path.read_bytes() == encode(_text(3)) + encode(_text(2))
    assert _resume(path) == [0, 1, 4] and path.read_bytes() == WHOLE


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
@pytest.mark.parametrize("other", ["put in order", "removed"])
def test_a_file_replaced_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    path = tmp_path / "r.jsonl"
    first = ResultsFile(path)
    if other == "put in order":
        first.begin(PROMPTS, MODELS)
        for at in (3, 2):
            first.add(_text(at))
    take = shared_files.lock

    def take_late(descriptor: int, *, wait: bool) -> bool:
        """The first run ends between opening and locking."""
        monkeypatch.setattr(shared_files, "lock", take)
        first.put_in_order()
        first.close()
        return take(descriptor, wait=wait)

    monkeypatch.setattr(shared_files, "lock", take_late)
    assert _resume(path) == ([0, 1, 4] if other == "put in order" else [0, 1, 2, 3, 4])
    assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("there", [None, b""])
def test_a_run_that_does_not_begin_changes_nothing(tmp_path: Path, there: bytes | None) -> None:
    path = tmp_path / "r.jsonl"
    if there is not None:
        path.write_bytes(there)
    with ResultsFile(path):
        pass
    assert (path.read_bytes() if path.exists() else None) == there


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes are POSIX's")
def test_the_target_of_a_link_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path, link = tmp_path / "r.jsonl", tmp_path / "link"
    path.write_bytes(encode(_text(4)))
    path.chmod(0o640)
    link.symlink_to(path)
    _resume(link)
    assert link.is_symlink() and path.read_bytes() == WHOLE and stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("where", ["", "missing/r.jsonl"])
def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path, where: str) -> None:
    with pytest.raises(BadOutput) as raised, ResultsFile(tmp_path / where) as file:
        file.begin(PROMPTS, MODELS)
    assert str(tmp_path) in str(raised.value) and isinstance(raised.value, DrafterError)
