"""Fetching a model into the shared cache: whole or not at all, from where it was cut, and not again."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from models.errors import Damaged, DiskFull, HubError, HubUnreachable, NoMatch, Offline
from models.hub.download import fetch_model, find_head, find_model
from models.hub.names import ModelName, parse_name
from models.hub.repository import PAUSES, Hub
from tests.paths import ROOT
from tests.stand_ins.hub import COMMIT, HubStandIn, serving

SIZE = 400_000
MODEL = random.Random(1).randbytes(SIZE)
FILES = {
    "README.md": b"# Toy",
    "Toy-BF16-00001-of-00002.gguf": b"one" * 100,
    "Toy-BF16-00002-of-00002.gguf": b"two" * 200,
    "Toy-Q4_K_M.gguf": MODEL,
    "Toy-Q8_0.gguf": b"eight" * 10,
}
TOY = ModelName("u/toy")


@pytest.fixture
def stand_in() -> Iterator[HubStandIn]:
    with serving({"u/toy": FILES}) as hub:
        yield hub


@pytest.fixture
def hub(stand_in: HubStandIn, tmp_path: Path) -> Hub:
    return Hub(stand_in.address, tmp_path, False, wait=lambda _seconds: None)


def _left(cache: Path, pattern: str) -> list[Path]:
    return sorted((cache / "models--u--toy").glob(pattern))


def test_a_model_is_fetched_once_and_the_hub_is_not_asked_again(stand_in: HubStandIn, hub: Hub, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    assert find_model(TOY, hub) is None
    path = fetch_model(TOY, hub, lambda done, total: told.append((done, total)))
    assert path.read_bytes() == MODEL and path.name == "Toy-Q4_K_M.gguf"
    assert told == sorted(told) and told[-1] == (SIZE, SIZE) and len(told) > 2
    asked = len(stand_in.asked)
    stand_in.repositories.clear()
    assert fetch_model(TOY, hub) == find_model(TOY, hub) == path and len(stand_in.asked) == asked
    assert _left(tmp_path, "blobs/*.part") == []


def test_other_tools_share_the_files(stand_in: HubStandIn, hub: Hub, tmp_path: Path) -> None:
    path = fetch_model(TOY, hub)
    library = {"repo_id": "u/toy", "cache_dir": tmp_path, "endpoint": stand_in.address, "token": False}
    assert huggingface_hub.hf_hub_download(filename=path.name, local_files_only=True, **library) == str(path)
    [repository] = huggingface_hub.scan_cache_dir(tmp_path).repos
    [revision] = repository.revisions
    assert (repository.size_on_disk, revision.commit_hash, revision.refs) == (SIZE, COMMIT, {"main"})
    theirs = huggingface_hub.hf_hub_download(filename="Toy-Q8_0.gguf", **library)
    stand_in.repositories.clear()
    assert str(fetch_model(parse_name("u/toy:q8_0"), hub)) == theirs


def test_what_other_tools_fetched_is_used_where_the_hub_has_no_better_match(
    stand_in: HubStandIn, tmp_path: Path
) -> None:
    library = {"repo_id": "u/toy", "cache_dir": tmp_path, "endpoint": stand_in.address, "token": False}
    theirs = huggingface_hub.hf_hub_download(filename="Toy-Q8_0.gguf", **library)
    hub = Hub(stand_in.address, tmp_path, False, wait=lambda _seconds: None)
    assert str(find_model(parse_name("u/toy:Q8_0"), hub)) == theirs
    assert find_model(TOY, hub) is None
    stand_in.refusals = [(503, {})] * (len(PAUSES) + 1)
    assert str(fetch_model(TOY, hub)) == theirs  # the hub is out of reach
    assert fetch_model(TOY, hub).name == "Toy-Q4_K_M.gguf"


def test_all_parts_of_a_split_model_are_fetched(stand_in: HubStandIn, hub: Hub) -> None:
    told: list[tuple[int, int]] = []
    path = fetch_model(parse_name("u/toy:bf16"), hub, lambda done, total: told.append((done, total)))
    assert path.name == "Toy-BF16-00001-of-00002.gguf" and told[-1] == (900, 900)
    second = path.with_name("Toy-BF16-00002-of-00002.gguf")
    assert (path.read_bytes(), second.read_bytes()) == (b"one" * 100, b"two" * 200)
    second.resolve().write_bytes(b"two")
    assert find_model(parse_name("u/toy:bf16"), hub) is None  # a part is shorter than the hub lists
    assert fetch_model(parse_name("u/toy:bf16"), hub) == path and second.read_bytes() == b"two" * 200
    assert stand_in.sent[path.name] == 300 and stand_in.sent[second.name] == 1200


def test_a_cut_connection_goes_on_where_it_was_cut(stand_in: HubStandIn, hub: Hub) -> None:
    stand_in.cuts = [100_000, 0, 0, 50_000, 0]
    assert fetch_model(TOY, hub).read_bytes() == MODEL
    assert stand_in.sent["Toy-Q4_K_M.gguf"] == SIZE
    ranges = [each.range for each in stand_in.asked if each.path.startswith("/large/")]
    begins = [0, 100_000, 100_000, 100_000, 150_000, 150_000]
    assert ranges == [f"bytes={begin}-{SIZE - 1}" for begin in begins]


def test_a_hub_without_ranges_is_read_from_the_start(stand_in: HubStandIn, hub: Hub) -> None:
    stand_in.ranges, stand_in.cuts = False, [100_000]
    assert fetch_model(TOY, hub).read_bytes() == MODEL
    assert stand_in.sent["Toy-Q4_K_M.gguf"] == SIZE + 100_000


HEADS = {"mtp-Toy-Q4_0.gguf": b"mtp" * 50, "mtp-Toy-Q8_0.gguf": b"mtp" * 90, "eagle3-Toy-BF16.gguf": b"eagle" * 20}


def test_a_head_of_its_own_comes_along_where_it_is_asked_for(stand_in: HubStandIn, hub: Hub) -> None:
    stand_in.repositories["u/toy"] |= HEADS
    told: list[tuple[int, int]] = []
    model = fetch_model(TOY, hub)
    assert find_head(TOY, hub) is None and not stand_in.sent["mtp-Toy-Q4_0.gguf"]
    assert find_model(TOY, hub) == model and find_model(TOY, hub, head="mtp") is None
    assert fetch_model(TOY, hub, lambda done, total: told.append((done, total)), head="mtp") == model
    head = find_head(TOY, hub)
    assert head is not None and head.name == "mtp-Toy-Q4_0.gguf" and head.read_bytes() == HEADS[head.name]
    assert told[-1] == (SIZE + 150, SIZE + 150) and stand_in.sent["Toy-Q4_K_M.gguf"] == SIZE
    asked = len(stand_in.asked)
    assert fetch_model(TOY, hub, head="mtp") == find_model(TOY, hub, head="mtp") == model
    assert len(stand_in.asked) == asked and find_head(TOY, hub, "eagle3") is None
    fetch_model(TOY, hub, head="eagle3")
    assert find_head(TOY, hub, "eagle3") == model.with_name("eagle3-Toy-BF16.gguf")


def test_a_repository_without_a_head_file_gives_the_model_alone(stand_in: HubStandIn, hub: Hub) -> None:
    assert fetch_model(TOY, hub, head="mtp").name == "Toy-Q4_K_M.gguf" and find_head(TOY, hub) is None
    asked = len(stand_in.asked)
    assert fetch_model(TOY, hub, head="mtp").name == "Toy-Q4_K_M.gguf" and len(stand_in.asked) == asked


def test_a_hub_out_of_reach_gives_the_model_without_its_head(stand_in: HubStandIn, hub: Hub) -> None:
    stand_in.repositories["u/toy"] |= HEADS
    model = fetch_model(TOY, hub)
    stand_in.refusals = [(503, {})] * (len(PAUSES) + 1)
    assert fetch_model(TOY, hub, head="mtp") == model and find_head(TOY, hub) is None


def test_a_head_goes_on_where_it_was_cut(stand_in: HubStandIn, hub: Hub) -> None:
    stand_in.repositories["u/toy"] |= HEADS
    fetch_model(TOY, hub)
    stand_in.cuts = [100] + [0] * (len(PAUSES) + 1)
    with pytest.raises(HubUnreachable):
        fetch_model(TOY, hub, head="mtp")
    assert find_head(TOY, hub) is None
    fetch_model(TOY, hub, head="mtp")
    assert find_head(TOY, hub) is not None and stand_in.sent["mtp-Toy-Q4_0.gguf"] == 150


PULL = """
import sys
from pathlib import Path
from models.hub.download import fetch_model
from models.hub.names import parse_name
from models.hub.repository import Hub

hub = Hub(sys.argv[1], Path(sys.argv[2]), False)
print(fetch_model(parse_name("u/toy"), hub, lambda done, total: print(done, flush=True)))
"""


def _pull(stand_in: HubStandIn, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PULL, stand_in.address, str(cache)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_pull_goes_on_in_a_new_process(stand_in: HubStandIn, tmp_path: Path) -> None:
    stand_in.holds = 250_000
    with _pull(stand_in, tmp_path) as first:
        assert first.stdout is not None
        while int(first.stdout.readline()) < 250_000:
            pass
        first.send_signal(signal.SIGKILL)
    stand_in.holds = None
    stand_in.go_on.set()
    before = len(stand_in.asked)
    with _pull(stand_in, tmp_path) as second:
        assert second.stdout is not None
        *_, path = second.stdout.read().splitlines()
    assert second.returncode == 0 and Path(path).read_bytes() == MODEL
    again = [each.range for each in stand_in.asked[before:] if each.path.startswith("/large/")]
    assert again == [f"bytes=250000-{SIZE - 1}"]  # nothing is asked for twice
    assert stand_in.sent["Toy-Q4_K_M.gguf"] == SIZE


def test_two_processes_fetch_a_file_once(stand_in: HubStandIn, hub: Hub, tmp_path: Path) -> None:
    stand_in.holds = 250_000
    with _pull(stand_in, tmp_path) as first:
        assert first.stdout is not None
        while int(first.stdout.readline()) < 250_000:
            pass
        here = threading.Thread(target=fetch_model, args=(TOY, hub))
        here.start()
        stand_in.go_on.set()
        here.join()
    assert find_model(TOY, hub) is not None and stand_in.counted("/large/") == 1


def test_a_damaged_file_is_fetched_again_once_and_then_given_up(stand_in: HubStandIn, hub: Hub, tmp_path: Path) -> None:
    stand_in.damage = 2
    with pytest.raises(Damaged, match=r"Toy-Q4_K_M.gguf came damaged: it has 400000 bytes and the hash .*; twice"):
        fetch_model(TOY, hub)
    assert _left(tmp_path, "blobs/*") == _left(tmp_path, "snapshots/*/*") == _left(tmp_path, "refs/*") == []
    stand_in.damage = 1
    assert fetch_model(TOY, hub).read_bytes() == MODEL


@pytest.mark.parametrize("spoiled", [b"x" * 100_000, b"x" * (SIZE + 1)])
def test_a_part_of_something_else_is_not_kept(stand_in: HubStandIn, hub: Hub, tmp_path: Path, spoiled: bytes) -> None:
    stand_in.cuts = [100_000] + [0] * (len(PAUSES) + 1)
    with pytest.raises(HubUnreachable):
        fetch_model(TOY, hub)
    [part] = _left(tmp_path, "blobs/*.part")
    part.write_bytes(spoiled)
    assert fetch_model(TOY, hub).read_bytes() == MODEL


def test_a_model_larger_than_the_disk_is_not_begun(
    stand_in: HubStandIn, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(ROOT)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=SIZE - 1))
    advice = r"BF16 \(0.0 MB\) and Q8_0 \(0.0 MB\) would fit: write u/toy:BF16; free .*, or set HF_HOME"
    with pytest.raises(DiskFull, match=advice) as caught:
        fetch_model(TOY, hub)
    assert (caught.value.needed, caught.value.free) == (SIZE, SIZE - 1) and not stand_in.sent
    assert fetch_model(parse_name("u/toy:Q8_0"), hub).stat().st_size == 50


def test_a_folder_of_safetensors_is_fetched_for_an_engine_that_reads_it(stand_in: HubStandIn, hub: Hub) -> None:
    files = {"README.md": b"#", "config.json": b"{}", "model.safetensors": b"weights", "r-Q4_K_M.gguf": b"GGUF"}
    stand_in.repositories["u/r"] = files
    name = ModelName("u/r")
    folder = fetch_model(name, hub, folder=True)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == {
        each: files[each] for each in ("config.json", "model.safetensors")
    }
    assert fetch_model(name, hub).name == "r-Q4_K_M.gguf" and find_model(name, hub, folder=True) == folder


def test_a_folder_goes_on_where_it_was_cut_and_each_of_its_files_is_checked(
    stand_in: HubStandIn, hub: Hub, tmp_path: Path
) -> None:
    weights = {f"model-0000{number}-of-00002.safetensors": MODEL[: 1000 * number] for number in (1, 2)}
    stand_in.repositories["u/toy"] = {"config.json": b"{}", "tokenizer.json": b"[]", **weights}
    stand_in.wrong = {"tokenizer.json"}
    with pytest.raises(Damaged, match=r"u/toy/tokenizer.json came damaged: it has 2 bytes and the hash "):
        fetch_model(TOY, hub, folder=True)
    stand_in.wrong.clear()
    stand_in.cuts = [1000, 500] + [0] * (len(PAUSES) + 1)
    with pytest.raises(HubUnreachable):
        fetch_model(TOY, hub, folder=True)
    assert find_model(TOY, hub, folder=True) is None and len(_left(tmp_path, "blobs/*.part")) == 1
    folder = fetch_model(TOY, hub, folder=True)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == stand_in.repositories["u/toy"]
    assert {path: stand_in.sent[path] for path in weights} == {path: len(weights[path]) for path in weights}


def test_a_newer_version_comes_when_it_is_asked_for(stand_in: HubStandIn, hub: Hub) -> None:
    old = fetch_model(TOY, hub)
    stand_in.commit = "f" * 40
    stand_in.repositories["u/toy"]["Toy-Q8_0.gguf"] = b"newer"
    assert fetch_model(TOY, hub) == old
    new = fetch_model(TOY, hub, refresh=True)
    assert new.parent.name == "f" * 40 and new.samefile(old) and stand_in.sent["Toy-Q4_K_M.gguf"] == SIZE
    assert fetch_model(parse_name("u/toy:Q8_0"), hub).read_bytes() == b"newer"


def test_offline_takes_what_is_in_the_cache_and_says_what_is_not(
    stand_in: HubStandIn, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch_model(TOY, hub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch_model(TOY, hub) == fetch_model(TOY, hub, refresh=True) == path
    with pytest.raises(Offline, match="HF_HUB_OFFLINE is set"):
        fetch_model(parse_name("u/toy:Q8_0"), hub)


def test_an_unknown_tag_and_a_cache_that_cannot_be_written_are_told(stand_in: HubStandIn, tmp_path: Path) -> None:
    with pytest.raises(NoMatch, match="u/toy has no model Q5_K_M, but these: BF16, Q4_K_M, Q8_0"):
        fetch_model(parse_name("u/toy:Q5_K_M"), Hub(stand_in.address, tmp_path, False))
    (file := tmp_path / "file").write_bytes(b"")
    with pytest.raises(HubError, match="u/toy: the cache cannot be used: "):
        fetch_model(TOY, Hub(stand_in.address, file, False))
