"""MTP heads draft what llama.cpp's own program drafts, whatever the slots did before."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from backends.llama_cpp.library import lib
from backends.llama_cpp.load import load
from models.gguf_file import read_gguf, write_gguf
from models.heads import make_head_model
from specpair.engines.backend import Backend, Entry, HeadEntry
from specpair.engines.errors import BadEntry, EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.paths import ROOT

RECORDS = json.loads((ROOT / "tests/backends/llama_cpp/head_drafts.json").read_text(encoding="utf-8"))["records"]
KINDS = sorted({record["kind"] for record in RECORDS})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a kind of model, made once."""
    folder, made = tmp_path_factory.mktemp("heads"), dict[str, Path]()

    def file(kind: str) -> Path:
        if kind not in made:
            made[kind] = folder / f"{kind}.gguf"
            make_head_model(kind, made[kind])
        return made[kind]

    return file


@pytest.fixture
def opened(files: Callable[[str], Path]) -> Iterator[Callable[..., Backend]]:
    """Loads a kind of model with its head."""
    backends = list[Backend]()

    def open_(kind: str, **options: Any) -> Backend:
        given: dict[str, Any] = {"slots": 1, "context_length": 512, "threads": 1, "head": "on"} | options
        backends.append(load(LoadOptions(model=files(kind), **given)))
        return backends[-1]

    yield open_
    for each in backends:
        each.close()


class Text:
    """A text that is written in a slot by drafts of the head."""

    def __init__(self, backend: Backend, slot: int, record: dict[str, Any]) -> None:
        self.backend, self.slot, self.record = backend, slot, record
        self.tokens: list[int] = []
        self.drafts: list[list[int]] = []
        self._draft: list[int] = []

    def read(self, held: int = 0, chunk: int = 512) -> None:
        """Read the prompt behind its first `held` tokens."""
        prompt = self.record["prompt"]
        for at in range(held, len(prompt), chunk):
            tokens = prompt[at : at + chunk]
            rows = self.backend.extend([Entry(self.slot, at, tokens, len(tokens) - 1)])[0]
        self.tokens = [*prompt, int(rows[0].argmax())]

    @property
    def written(self) -> list[int]:
        return self.tokens[len(self.record["prompt"]) :]

    @property
    def over(self) -> bool:
        return len(self.written) >= len(self.record["text"])

    @property
    def question(self) -> HeadEntry | None:
        """What the head is asked next in this round; None: the draft is as long as in the record."""
        if len(self._draft) == min(self.record["k"], self.backend.head_depth):
            return None
        return HeadEntry(self.slot, len(self.tokens) - 1, [self.tokens[-1], *self._draft])

    def drafted(self, row: np.ndarray) -> None:
        self._draft.append(int(row.argmax()))

    @property
    def entry(self) -> Entry:
        return Entry(self.slot, len(self.tokens) - 1, [self.tokens[-1], *self._draft], 0)

    def judged(self, rows: np.ndarray) -> None:
        picks, draft = rows.argmax(axis=1).tolist(), self._draft
        accepted = next((at for at, token in enumerate(draft) if picks[at] != token), len(draft))
        self.drafts.append(draft)
        self.tokens += picks[: accepted + 1]
        self._draft = []


def write(texts: Sequence[Text], turns: random.Random | None = None) -> None:
    """Write all of them to their ends, in shared passes. `turns`: chooses the texts of each round; None: all."""
    backend = texts[0].backend
    while left := [each for each in texts if not each.over]:
        left = left if turns is None else turns.sample(left, turns.randint(1, len(left)))
        while asking := [(each, asked) for each in left if (asked := each.question) is not None]:
            rows = backend.extend_head([asked for _, asked in asking])
            for (each, _), row in zip(asking, rows, strict=True):
                each.drafted(row)
        for each, judged in zip(left, backend.extend([each.entry for each in left]), strict=True):
            each.judged(judged)
    for each in texts:
        assert each.written[: len(each.record["text"])] == each.record["text"]
        assert each.drafts == each.record["drafts"]


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: f"{each['kind']}-{each['k']}-{len(each['prompt'])}")
@pytest.mark.parametrize("chunk", [7, 512])
def test_text_and_drafts_equal_the_record(opened: Callable[..., Backend], record: dict[str, Any], chunk: int) -> None:
    text = Text(opened(record["kind"]), 0, record)
    text.read(chunk=chunk)
    write([text])


@pytest.mark.parametrize("seed", [None, 1], ids=["all", "by turns"])
@pytest.mark.parametrize("kind", KINDS)
def test_slots_in_shared_passes_draft_as_alone(opened: Callable[..., Backend], kind: str, seed: int | None) -> None:
    """By turns, others have passes of their own between a rejection and the slot's next pass, also in a hybrid."""
    records = [record for record in RECORDS if record["kind"] == kind]
    backend = opened(kind, slots=3)
    texts = [Text(backend, slot, record) for slot, record in zip(range(3), [*records, records[0]][:3], strict=False)]
    for text in texts:
        text.read()
    write(texts, None if seed is None else random.Random(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_that_was_taken_over_drafts_as_a_new_one(opened: Callable[..., Backend], kind: str) -> None:
    first, *others = [record for record in RECORDS if record["kind"] == kind]
    backend = opened(kind, slots=2)
    for record in (*others, first):  # each takes the slot of the one before, as it is
        text = Text(backend, 0, record)
        text.read()
        write([text])
    backend.release(0)
    text.read()
    text.drafts = []
    write([text])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_prompt_is_as_good_as_a_read_one(opened: Callable[..., Backend], kind: str) -> None:
    record = next(record for record in RECORDS if record["kind"] == kind)
    prompt = record["prompt"]
    backend = opened(kind, slots=2)
    backend.extend([Entry(0, 0, prompt[:-8], len(prompt) - 8)])
    backend.copy(0, 1, len(prompt) - 8)
    backend.release(0)
    text = Text(backend, 1, record)
    text.read(held=len(prompt) - 8)
    write([text])


@pytest.mark.parametrize("kind", ["glm4moe", "mimo2"])
def test_a_path_of_a_tree_that_is_kept_is_read_like_a_chain(opened: Callable[..., Backend], kind: str) -> None:
    record = next(record for record in RECORDS if record["kind"] == kind)
    backend = opened(kind, slots=2)
    text = Text(backend, 1, record)
    prompt = record["prompt"]
    backend.extend([Entry(1, 0, prompt[:-3], len(prompt) - 3)])
    # Behind prompt[-3] two branches: another token, and the prompt's own last two.
    backend.extend([Entry(1, len(prompt) - 3, [prompt[-3], 7, prompt[-2], prompt[-1]], 3, parents=[1, 2, 1])])
    backend.keep(1, [2, 3])
    row = backend.extend_head([HeadEntry(1, len(prompt), [record["text"][0]])])[0]
    assert int(row.argmax()) == record["drafts"][0][0]
    text.read(held=len(prompt) - 1)
    write([text])


def test_a_deterministic_target_has_a_head_too(opened: Callable[..., Backend]) -> None:
    record = RECORDS[0]
    backend = opened(record["kind"], slots=2, deterministic=True)
    texts = [Text(backend, slot, record) for slot in (0, 1)]
    for text in texts:
        text.read()
    write(texts)


def test_long_waits_between_drafts_change_nothing(opened: Callable[..., Backend]) -> None:
    """The target decodes alone for longer than pairs wait, then the head drafts again."""
    record = RECORDS[0]
    backend, alone = opened(record["kind"], slots=2), 90
    texts = [Text(backend, slot, record) for slot in (0, 1)]
    for text in texts:
        text.read()
    while len(texts[0].written) < alone:  # the first is asked all the time, the second never
        asked = texts[0].question
        if asked is not None:
            texts[0].drafted(backend.extend_head([asked])[0])
        else:
            texts[0].judged(backend.extend([texts[0].entry])[0])
    while len(texts[1].written) < len(texts[0].written):
        texts[1].judged(backend.extend([texts[1].entry])[0])
    assert texts[0].tokens == texts[1].tokens
    first, second = backend.extend_head([asked for each in texts if (asked := each.question) is not None])
    assert first.argmax() == second.argmax() and np.allclose(first, second, atol=1e-3)


def test_a_question_that_does_not_fit_is_refused_and_changes_nothing(opened: Callable[..., Backend]) -> None:
    record = RECORDS[0]
    backend = opened(record["kind"], slots=2)
    text = Text(backend, 0, record)
    text.read()
    length, token = len(record["prompt"]), text.tokens[-1]
    too_long = [token] * (backend.head_depth + 1)
    for wrong in ([HeadEntry(0, length + 1, [token])], [HeadEntry(0, length, [])], [HeadEntry(0, length, too_long)]):
        with pytest.raises(BadEntry):
            backend.extend_head(wrong)
    with pytest.raises(BadEntry, match="slot 2 does not exist"):
        backend.extend_head([HeadEntry(2, 0, [token])])
    with pytest.raises(BadEntry, match="same slot"):
        backend.extend_head([HeadEntry(0, length, [token]), HeadEntry(0, length, [token])])
    write([text])


def test_a_head_that_fails_leaves_the_target_s_pass_alone(
    opened: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = next(record for record in RECORDS if len(record["prompt"]) > 100)
    backend = opened(record["kind"], slots=2)
    decode = lib.llama_decode

    def failing(context: Any, batch: Any) -> int:
        return -3 if batch.embd else int(decode(context, batch))  # only a head is fed more than tokens

    text = Text(backend, 0, record)
    with monkeypatch.context() as patched:
        patched.setattr(lib, "llama_decode", failing)
        text.read()
        question = text.question
        assert question is not None
        with pytest.raises(EngineFailure, match="the model's head"):
            backend.extend_head([question])
    assert text.written[0] == record["text"][0] and backend.length(0) == len(record["prompt"])
    while not text.over:  # it goes on with what it reads from here
        question = text.question
        if question is None:
            text.judged(backend.extend([text.entry])[0])
        else:
            text.drafted(backend.extend_head([question])[0])
    assert text.written[: len(record["text"])] == record["text"]


def test_without_a_head_none_is_loaded(files: Callable[[str], Path]) -> None:
    backend = load(LoadOptions(model=files("glm4moe"), context_length=64))
    try:
        assert backend.head_depth == 0
        with pytest.raises(BadEntry):
            backend.extend_head([HeadEntry(0, 0, [5])])
    finally:
        backend.close()


def without(file: Path, changed: Path, *ends: str) -> Path:
    """A copy of a file that lacks the tensors with these ends."""
    gguf = read_gguf(file)
    write_gguf(replace(gguf, tensors=[each for each in gguf.tensors if not each.name.endswith(ends)]), changed)
    return changed


def test_a_file_that_lacks_what_it_names_is_refused_before_a_context_is_made(
    files: Callable[[str], Path], tmp_path: Path
) -> None:
    lacking = without(files("glm4moe"), tmp_path / "lacking.gguf", ".nextn.eh_proj.weight")
    with pytest.raises(ModelLoadError, match="lacks its tensors") as error:
        load(LoadOptions(model=lacking, head="on"))
    assert error.value.setting == "draft"
    load(LoadOptions(model=lacking, head="auto", context_length=64)).close()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files("glm4moe").read_bytes()[:-5000])
    with pytest.raises(ModelLoadError):
        load(LoadOptions(model=cut, head="on"))


def test_a_model_without_a_head_says_so(files: Callable[[str], Path]) -> None:
    target = ROOT / "models/stdlib-target-q8_0.gguf"
    with pytest.raises(ModelLoadError, match="stdlib-target-q8_0 cannot draft by itself: its file has no MTP head"):
        load(LoadOptions(model=target, head="on"))
    assert len(GGUFReader(files("stdlib")).tensors) > len(GGUFReader(target).tensors)
