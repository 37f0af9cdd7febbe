"""The command `models` with heads that draft: in the target's file, or in a file of their own on a stand-in hub."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.commands.cached_models import ServedModel
from models.hub.repository import PAUSES
from specpair.engines.load_options import FreeMemory
from tests.models.commands.conftest import Run
from tests.stand_ins.hub import HubStandIn, serving
from tests.stand_ins.tiny_architectures import write_tiny_architecture
from tests.stand_ins.tiny_heads import KV_OF_LAYER, write_lone_head, write_lone_mtp, write_target_with_mtp

INSIDE, PLAIN, OWN, EAGLE = "toy-Q8_0.gguf", "plain-Q8_0.gguf", "mtp-plain-Q8_0.gguf", "eagle3-plain-F16.gguf"
TEXT = 512 * 2 * KV_OF_LAYER  # bytes of KV cache in f16 that a text of the whole context takes in one layer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    paths = {name: folder / name for name in (INSIDE, PLAIN, OWN, EAGLE)}
    write_target_with_mtp(paths[INSIDE])
    write_tiny_architecture("qwen35", paths[PLAIN])
    write_lone_mtp(paths[OWN])
    write_lone_head("eagle3", paths[EAGLE])
    return paths


@pytest.fixture
def stand_in(files: dict[str, Path]) -> Iterator[HubStandIn]:
    content = {name: path.read_bytes() for name, path in files.items()}
    own = {name: content[name] for name in (PLAIN, OWN, EAGLE)}
    with serving({"u/inside": {INSIDE: content[INSIDE]}, "u/own": own, "u/none": {PLAIN: content[PLAIN]}}) as hub:
        yield hub


def _head(run: Run, model: str) -> str:
    [line] = [line for line in run("show", model)[1].splitlines() if line.startswith("head ")]
    return line.removeprefix("head").strip()


def test_a_model_is_shown_with_the_head_in_its_file(run: Run, files: dict[str, Path]) -> None:
    shown = "mtp, 1 layer, 0.2 MB in the model's file; a text of 512 takes 0.1 MB of KV cache in f16"
    assert _head(run, "u/inside") == _head(run, str(files[INSIDE])) == shown
    told = json.loads(run("show", "u/inside", "--json")[1])
    head = {"kind": "mtp", "file": None, "layers": 1, "bytes": told["head"]["bytes"]}
    assert told["head"] == head | {"kv_bytes_per_token": 2 * KV_OF_LAYER}
    assert told["kv_bytes_per_token"] == json.loads(run("show", str(files[PLAIN]), "--json")[1])["kv_bytes_per_token"]
    assert _head(run, "u/none") == "none" and json.loads(run("show", "u/none", "--json")[1])["head"] is None


def test_a_model_is_shown_with_the_head_beside_it_whether_fetched_or_not(run: Run, files: dict[str, Path]) -> None:
    shown = f"mtp, 1 layer, 0.2 MB in {OWN}; a text of 512 takes 0.1 MB of KV cache in f16"
    assert _head(run, "u/own") == shown
    run("pull", "u/own")
    assert _head(run, "u/own") == f"{OWN}, which is not in the cache: pull --head fetches it"
    told = json.loads(run("show", "u/own", "--json")[1])["head"]
    assert told == {"kind": "mtp", "file": OWN, "layers": None, "bytes": None, "kv_bytes_per_token": None}
    run("pull", "u/own", "--head", "mtp")
    assert _head(run, "u/own") == shown


def test_a_file_of_a_head_is_shown_as_such(run: Run, files: dict[str, Path]) -> None:
    assert " in a file without its target; " in _head(run, str(files[OWN]))
    assert _head(run, str(files[EAGLE])).startswith("eagle3, 1 layer, ")


def test_a_head_is_pulled_listed_and_removed_with_its_model(
    run: Run, files: dict[str, Path], stand_in: HubStandIn
) -> None:
    status, out, _ = run("pull", "u/own", "--head", "mtp")
    model, head = (Path(line) for line in out.splitlines())
    assert status == 0 and (model.name, head.name) == (PLAIN, OWN) and head.read_bytes() == files[OWN].read_bytes()
    run("pull", "u/inside")
    run("pull", "u/none")
    marked = {line.split()[0]: "qwen35, hybrid, mtp head" in line for line in run("list")[1].splitlines()[1:]}
    assert marked == {"u/inside:Q8_0": True, "u/none:Q8_0": False, "u/own:Q8_0": True}
    assert [each["head"] for each in json.loads(run("list", "--json")[1])] == ["mtp", None, "mtp"]
    assert run("remove", "u/own:Q8_0")[0] == 0 and not model.exists() and not head.exists()


def test_a_head_stays_as_long_as_another_tag_has_it(run: Run, stand_in: HubStandIn, files: dict[str, Path]) -> None:
    stand_in.repositories["u/own"]["plain-Q4_0.gguf"] = files[PLAIN].read_bytes() + bytes(32)
    head = Path(run("pull", "u/own:Q8_0", "--head", "mtp")[1].splitlines()[1])
    run("pull", "u/own:Q4_0")
    run("remove", "u/own:Q4_0")
    assert head.exists()
    run("pull", "u/own:Q4_0")
    run("remove", "u/own:Q8_0")
    assert head.exists()
    run("remove", "u/own:Q4_0")
    assert not head.exists()


def test_a_head_for_another_tag_is_not_taken(run: Run, stand_in: HubStandIn, files: dict[str, Path]) -> None:
    for name in (PLAIN, OWN):  # a content of its own, which the cache has not got under another name
        stand_in.repositories["u/own"][name.replace("Q8_0", "Q4_0")] = files[name].read_bytes() + bytes(32)
    run("pull", "u/own:Q8_0", "--head", "mtp")
    run("pull", "u/own:Q4_0")
    assert [each["head"] for each in json.loads(run("list", "--json")[1])] == ["mtp", None]
    assert _head(run, "u/own:Q4_0").startswith("mtp-plain-Q4_0.gguf, which is not in the cache")


def test_a_head_that_is_inside_or_missing_is_told(run: Run) -> None:
    status, out, err = run("pull", "u/inside", "--head", "mtp")
    assert status == 0 and len(out.splitlines()) == 1 and "the mtp head of u/inside is in its own file" in err
    status, out, err = run("pull", "u/inside", "--head", "eagle3")
    assert status == 1 and Path(out.strip()).is_file() and "its repository has no eagle3 head for it" in err
    assert run("pull", "u/none", "--head", "mtp")[0] == 1


def test_a_head_whose_fetch_was_cut_off_is_listed_and_removed(run: Run, stand_in: HubStandIn) -> None:
    run("pull", "u/own")
    stand_in.cuts = [1000] + [0] * (len(PAUSES) + 1)
    assert run("pull", "u/own", "--head", "mtp")[0] == 1
    lines = run("list")[1].splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["u/own:Q8_0"] * 2 and "pull continues" in lines[1]
    assert run("remove", "u/own:Q8_0")[0] == 0 and run("list")[1] == ""


@pytest.mark.parametrize(
    "arguments",
    [("pull", "u/own", "--head", "medusa"), ("show", "u/own", "--head", "mtp"), ("pull", "u/own", "--head")],
)
def test_wrong_uses_of_the_flag_are_refused(run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as raised:
        run(*arguments)
    assert raised.value.code == 2
    with pytest.raises(SystemExit):
        run("pull", "u/own", "--head", "mtp", "--safetensors")


def test_memory_is_planned_with_the_head(run: Run, files: dict[str, Path]) -> None:
    told = json.loads(run("show", "u/own", "--json")[1])
    cached, head = 512 * told["kv_bytes_per_token"], told["head"]["bytes"]
    alone = told["weight_bytes"] + cached
    assert "fetched all the same" not in run("pull", "u/own", room=FreeMemory(alone))[2]
    run("remove", "u/own")
    short = run("pull", "u/own", "--head", "mtp", room=FreeMemory(alone + head + TEXT - 1))
    assert short[0] == 0 and "fetched all the same" in short[2]
    run("remove", "u/own")
    assert "fetched all the same" not in run("pull", "u/own", "--head", "mtp", room=FreeMemory(alone + head + TEXT))[2]
    inside = json.loads(run("show", "u/inside", "--json")[1])["weight_bytes"] + cached
    assert "fetched all the same" in run("pull", "u/inside", "--head", "mtp", room=FreeMemory(inside))[2]
    run("remove", "u/inside")
    assert "fetched all the same" not in run("pull", "u/inside", "--head", "mtp", room=FreeMemory(inside + TEXT))[2]


def test_the_weights_of_a_head_are_not_read_by_a_step_of_its_model(run: Run, files: dict[str, Path]) -> None:
    plain, inside = str(files[PLAIN]), str(files[INSIDE])
    assert json.loads(run("check", plain, inside, "--json")[1])["share"] == 1


def test_heads_are_suggested(run: Run, files: dict[str, Path]) -> None:
    status, out, _ = run("suggest", "u/inside")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == ["name", "u/inside"]
    assert "in its file  its own mtp head" in out
    assert f"{OWN}  its own mtp head" in run("suggest", "u/own")[1]
    served = ServedModel("Qwen3.6-27B-Q4_K_M", "f" * 64, lambda _path: None)
    [told] = json.loads(run("suggest", "--json", serves=served)[1])
    assert told == {
        "name": "unsloth/Qwen3.6-27B-MTP-GGUF",
        "bytes": None,
        "where": "on the hub",
        "known": "the target with its mtp head in the model's file",
    }
    table = run("suggest", serves=served)[1].splitlines()
    assert table[1].startswith("unsloth/Qwen3.6-27B-MTP-GGUF  -     on the hub  ")
    later = ServedModel("Qwen3.8-27B-UD-Q4_K_XL", "f" * 64, lambda _path: None)
    assert "in a file of its own (pull --head mtp)" in run("suggest", serves=later)[1]
