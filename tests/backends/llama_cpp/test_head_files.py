"""Heads in files of their own: their drafts beside those of llama.cpp's own program, and files that are refused."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from backends.llama_cpp.layer_inputs import exported
from backends.registry import load
from models.gguf_file import Gguf, Tensor, field_of, read_gguf, write_gguf
from models.heads import FILE_KINDS, make_head_file, make_head_model
from specpair.engines.backend import Backend, Entry, HeadEntry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import HEAD, NO_HEAD, LoadOptions
from tests.paths import ROOT

FOLDER = ROOT / "tests/backends/llama_cpp"
OF_FILES = json.loads((FOLDER / "head_file_drafts.json").read_text(encoding="utf-8"))["records"]
OF_TARGETS = json.loads((FOLDER / "head_drafts.json").read_text(encoding="utf-8"))["records"]
MTP = next(record for record in OF_TARGETS if record["kind"] == "glm4moe")
TEXT = [5 + 7 * at % 190 for at in range(60)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target for each kind of head, and the heads: glm4moe is split into trunk and head."""
    folder = tmp_path_factory.mktemp("heads")
    for kind in FILE_KINDS:
        make_head_file(kind, folder / f"{kind}.gguf")
    make_head_model("glm4moe", folder / "glm4moe.gguf")
    whole = read_gguf(folder / "glm4moe.gguf")
    trunk = {"glm4moe.block_count": field_of(1), "glm4moe.nextn_predict_layers": field_of(0)}
    _write(whole, folder / "trunk.gguf", trunk, lambda name: not name.startswith("blk.1."))
    _write(whole, folder / "mtp.gguf", {}, lambda name: not name.startswith("blk.0."))
    return folder


def _write(model: Gguf, path: Path, fields: dict[str, Any], keeps: Callable[[str], bool] = bool) -> Path:
    """Write `model` with some of its tensors, and with fields of its own; a field that is None is left out."""
    found = {key: value for key, value in {**model.fields, **fields}.items() if value is not None}
    tensors = [tensor for tensor in model.tensors if keeps(tensor.name)]
    write_gguf(replace(model, fields=found, tensors=tensors), path)
    return path


@contextmanager
def loaded(files: Path, target: str, head: str | Path, slots: int = 1, **options: Any) -> Iterator[Backend]:
    path = files / f"{head}.gguf" if isinstance(head, str) else head
    wanted = LoadOptions(files / f"{target}.gguf", slots, 256, threads=1, head=HEAD, head_file=path, **options)
    with closing(load("llama_cpp", wanted)) as backend:
        yield backend


def drafted(backend: Backend, asked: Sequence[tuple[int, Sequence[int]]], count: int) -> list[list[int]]:
    """The head's `count` likeliest tokens behind texts, of which slots hold all but the last. `asked`: slots, texts."""
    found = [list[int]() for _ in asked]
    for _ in range(count):
        entries = [
            HeadEntry(slot, len(text) - 1, [text[-1], *each]) for (slot, text), each in zip(asked, found, strict=True)
        ]
        for each, row in zip(found, backend.extend_head(entries), strict=True):
            each.append(int(row.argmax()))
    return found


def rounds(backend: Backend, prompt: Sequence[int], drafts: int, tokens: int) -> tuple[list[int], list[list[int]]]:
    """A text of the target's likeliest tokens, written in rounds in slot 0, and the drafts of each round."""
    text, found = list(prompt), list[list[int]]()
    text.append(int(backend.extend([Entry(0, 0, prompt, len(prompt) - 1)])[0][0].argmax()))
    while len(text) < len(prompt) + tokens:
        draft = drafted(backend, [(0, text)], drafts)[0]
        found.append(draft)
        picks = backend.extend([Entry(0, len(text) - 1, [text[-1], *draft], 0)])[0].argmax(axis=1).tolist()
        same = next((at for at, token in enumerate(draft) if picks[at] != token), drafts)
        text += picks[: same + 1]
    return text[len(prompt) :][:tokens], found


@pytest.mark.parametrize("record", OF_FILES, ids=lambda record: f"{record['kind']}-{record['k']}")
def test_drafts_and_text_are_those_of_llama_cpp_itself(files: Path, record: dict[str, Any]) -> None:
    for name, key in ((record["kind"], "weights"), (record["target"], "target_weights")):
        digest = hashlib.sha256()
        for tensor in sorted(read_gguf(files / f"{name}.gguf").tensors, key=lambda tensor: tensor.name):
            digest.update(tensor.data.tobytes())
        assert digest.hexdigest() == record[key], "every machine must make the model that was recorded"
    with loaded(files, record["target"], record["kind"]) as backend:
        text, drafts = rounds(backend, record["prompt"], record["k"], len(record["text"]))
    assert (text, drafts) == (record["text"], record["drafts"])


def test_an_mtp_head_in_a_file_of_its_own_drafts_as_in_the_target_s(files: Path) -> None:
    with loaded(files, "trunk", "mtp") as backend:
        assert backend.head_name == "MTP head"
        text, drafts = rounds(backend, MTP["prompt"], MTP["k"], len(MTP["text"]))
    assert (text, drafts) == (MTP["text"], MTP["drafts"])


@pytest.mark.parametrize(("kind", "name", "depth"), [("eagle3", "EAGLE-3 head", 8), ("dflash", "DFlash head", 7)])
def test_texts_in_a_batch_are_drafted_as_each_alone(files: Path, kind: str, name: str, depth: int) -> None:
    """After rollbacks of any length, also of what was drafted and accepted, and after copies of a beginning."""
    random, texts = Random(3), [TEXT[:20], TEXT[7:40], TEXT[3:9]]

    def fresh(text: Sequence[int]) -> list[int]:
        with loaded(files, "llama", kind) as alone:
            alone.extend([Entry(0, 0, text[:-1], len(text) - 1)])
            return drafted(alone, [(0, text)], 4)[0]

    with loaded(files, "llama", kind, slots=3) as backend:
        assert (backend.head_name, backend.head_depth) == (name, depth)
        backend.extend([Entry(slot, 0, text[:-1], len(text) - 1) for slot, text in enumerate(texts)])
        for _ in range(5):
            found = drafted(backend, [*enumerate(texts)], 4)
            judged = [Entry(slot, len(text) - 1, [text[-1], *found[slot]], 0) for slot, text in enumerate(texts)]
            backend.extend(judged)
            for slot, text in enumerate(texts):
                text += [*found[slot][: random.randrange(5)], TEXT[random.randrange(60)]]
                backend.extend([Entry(slot, len(text) - 2, [text[-2]], 1)])
        assert drafted(backend, [*enumerate(texts)], 4) == [fresh(text) for text in texts]
        length = len(texts[0]) - 6
        backend.copy(0, 2, length)
        texts[2] = [*texts[0][:length], *TEXT[:3]]
        backend.extend([Entry(2, length, TEXT[:2], 2)])
        assert drafted(backend, [*enumerate(texts)], 4) == [fresh(text) for text in texts]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_path_of_a_tree_is_drafted_from_as_a_chain(files: Path, kind: str) -> None:
    with loaded(files, "llama", kind, slots=2) as backend:
        backend.extend([Entry(0, 0, TEXT[:12], 12), Entry(1, 0, TEXT[:10], 10)])
        backend.extend([Entry(1, 10, [TEXT[10], 3, 4, TEXT[11]], 4, [1, 1, 3])])
        backend.keep(1, [3])
        text = TEXT[:13]
        assert len({tuple(each) for each in drafted(backend, [(0, text), (1, text)], 4)}) == 1


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_slot_whose_rows_were_lost_is_drafted_for_all_the_same(files: Path, kind: str) -> None:
    with loaded(files, "llama", kind, slots=2) as backend:
        backend.extend([Entry(slot, 0, TEXT[:30], 30) for slot in range(2)])
        backend.splice(1, 4, 8)
        assert np.isfinite(backend.extend_head([HeadEntry(1, 26, TEXT[30:31])])).all()
        assert np.isfinite(backend.extend_head([HeadEntry(0, 0, TEXT[:2])])).all(), "behind nothing"


def test_a_file_is_not_read_where_no_head_is_wanted(files: Path) -> None:
    options = LoadOptions(files / "llama.gguf", 1, 64, threads=1, head=NO_HEAD, head_file=files / "none.gguf")
    with closing(load("llama_cpp", options)) as backend:
        assert backend.head_depth == 0


def _another_vocabulary(model: Gguf) -> dict[str, Any]:
    keys = {f"tokenizer.ggml.{key}": model.fields[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type")}
    return {key: replace(entry, value=entry.value[:-1]) for key, entry in keys.items()}


WRONG: dict[str, tuple[str, str, Callable[[Gguf], dict[str, Any]], str]] = {
    "tokens": ("eagle3", "llama", _another_vocabulary, "it has 4095 tokens, and llama has 4096"),
    "tokens of mtp": ("mtp", "trunk", lambda _: {"tokenizer.ggml.tokens": None}, "it has 0 tokens, and trunk has 4096"),
    "width": (
        "eagle3",
        "llama",
        lambda _: {"eagle3.target_hidden_size": field_of(32)},
        "target_hidden_size is 32, and",
    ),
    "own width": (
        "dflash",
        "llama",
        lambda _: {"dflash.embedding_length": field_of(32)},
        "embedding_length is 32, and",
    ),
    "layers": ("eagle3", "llama", lambda _: {"eagle3.target_layers": field_of([0, 1, 3])}, "the model has 0 to 2"),
    "no layers": ("dflash", "llama", lambda _: {"dflash.target_layers": None}, "it names no layers of its target"),
    "two layers": (
        "eagle3",
        "llama",
        lambda _: {"eagle3.target_layers": field_of([0, 1])},
        "reads 2 layers, and an EA",
    ),
    "blocks": ("eagle3", "llama", lambda _: {"eagle3.block_count": field_of(2)}, "it has 2 blocks, and"),
    "block": (
        "dflash",
        "llama",
        lambda _: {"dflash.block_size": field_of(1)},
        "block_size is 1, and must be at least 2",
    ),
    "mask": ("dflash", "llama", lambda _: {"tokenizer.ggml.mask_token_id": None}, "mask token .* is None"),
    "no layers out": ("eagle3", "trunk", lambda _: {}, "hands out no inputs of layers of the architecture glm4moe"),
    "trunk alone": ("trunk", "trunk", lambda _: {}, "its file has no MTP head: choose another"),
    "whole model": ("glm4moe", "trunk", lambda _: {}, "it has a whole model beside the head: name it as the model"),
    "architecture": ("mtp", "llama", lambda _: {}, "its architecture is glm4moe, and that of llama is llama"),
}


@pytest.mark.parametrize(("head", "target", "fields", "message"), WRONG.values(), ids=WRONG)
def test_a_file_that_does_not_fit_the_target_is_refused(
    files: Path, tmp_path: Path, head: str, target: str, fields: Callable[[Gguf], dict[str, Any]], message: str
) -> None:
    model = read_gguf(files / f"{head}.gguf")
    path = _write(model, tmp_path / "head.gguf", fields(model))
    with (
        pytest.raises(ModelLoadError, match=f"^draft_head: .*head.gguf cannot draft for {target}: .*{message}"),
        loaded(files, target, path),
    ):
        pass


@pytest.mark.parametrize(("kind", "tensor"), [("eagle3", "fc.weight"), ("dflash", "blk.1.ffn_up.weight")])
def test_a_file_without_a_tensor_or_cut_is_refused_with_llama_cpp_s_reason(
    files: Path, tmp_path: Path, kind: str, tensor: str
) -> None:
    path = _write(read_gguf(files / f"{kind}.gguf"), tmp_path / "lacks.gguf", {}, lambda name: name != tensor)
    with pytest.raises(ModelLoadError, match=tensor), loaded(files, "llama", path):
        pass
    for part in (0.5, 0.99):
        data = (files / f"{kind}.gguf").read_bytes()
        path.write_bytes(data[: int(part * len(data))])
        with pytest.raises(ModelLoadError, match=r"lacks\.gguf"), loaded(files, "llama", path):
            pass


def test_tokens_of_a_reduced_vocabulary_must_be_the_target_s(files: Path, tmp_path: Path) -> None:
    model, target = read_gguf(files / "eagle3.gguf"), read_gguf(files / "llama.gguf")
    output = next(tensor for tensor in target.tensors if tensor.name == "output.weight")
    known = np.arange(0, 4096, 4, dtype=np.int64)

    def head(tokens: Any) -> Path:
        kind = type(output.kind).I64
        more = [replace(output, data=output.data[known]), Tensor("d2t", tokens, kind)]
        write_gguf(replace(model, tensors=[*model.tensors, *more]), tmp_path / "reduced.gguf")
        return tmp_path / "reduced.gguf"

    with loaded(files, "llama", head(known)) as backend:
        backend.extend([Entry(0, 0, TEXT, len(TEXT))])
        row = backend.extend_head([HeadEntry(0, len(TEXT), [7])])[0]
        assert np.flatnonzero(np.isfinite(row)).tolist() == known.tolist()
    with pytest.raises(ModelLoadError, match="tokens beyond the 4096"), loaded(files, "llama", head(known + 4)):
        pass


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "mtp"])
def test_a_head_alone_is_no_model(files: Path, kind: str) -> None:
    with pytest.raises(ModelLoadError, match=r"is no model, but the \w+ head of one"):
        load("llama_cpp", LoadOptions(files / f"{kind}.gguf", 1, 64, threads=1))


def test_a_library_without_the_functions_is_named() -> None:
    with pytest.raises(ModelLoadError, match=r"this build of llama\.cpp does not export llama_no_such, which EAGLE-3"):
        exported(["llama_no_such", "_Z13llama_no_suchv"], [], None)
