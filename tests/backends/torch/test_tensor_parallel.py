"""Tensor parallelism: two processes compute the logits of one, and both end when either ends.

Runs on a CPU, over Gloo. tests/conformance tests the whole contract.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from backends.trial.checks import random_batches
from specpair.engines.backend import Entry, TopLogitsSpec
from specpair.engines.errors import EngineLost, ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel
from tests.paths import ROOT

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
transformers = pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from backends.torch import backend as torch_backend  # noqa: E402
from backends.torch import follower_team  # noqa: E402
from backends.torch.backend import TorchBackend  # noqa: E402 - it needs the extra
from backends.torch.cache import SlotCache  # noqa: E402
from backends.torch.follower_team import Team  # noqa: E402
from backends.torch.tensor_parallel import LeaderShard  # noqa: E402

pytestmark = [
    pytest.mark.engine("torch"),
    pytest.mark.skipif(torch.accelerator.is_available(), reason="transformers would take the accelerators"),
]

OPTIONS = LoadOptions(slots=3, context_length=128, batch_tokens=48, device="cpu", threads=1, tensor_parallel=2)
TEXT = [int(token) for token in np.random.default_rng(5).integers(2, 260, 128)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with two key-value heads, and weights large enough for both to affect the logits."""
    return TinyModel(tmp_path_factory.mktemp("models") / "tiny", num_attention_heads=4, num_key_value_heads=2).folder


@contextmanager
def spread(
    folder: Path, compiler: str | None = None, has_top_logits: bool = False, **changes: Any
) -> Iterator[LeaderShard]:
    options = replace(OPTIONS, model=folder, **changes)
    with closing(LeaderShard(options, compiler=compiler, has_top_logits=has_top_logits)) as backend:
        yield backend


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[bytes]"]:
    """The follower processes that a test starts."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **how: Any) -> None:
            super().__init__(*given, **how)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return started


def test_two_processes_equal_one(folder: Path) -> None:
    """Over prompts in chunks, rollbacks, copies and passes over several slots."""
    generator = np.random.default_rng(1)
    greatest: list[float] = []
    alone = TorchBackend(replace(OPTIONS, model=folder, tensor_parallel=1))
    with closing(alone), spread(folder) as together:
        for batch in random_batches(alone, 60):
            for one, two in zip(alone.extend(batch), together.extend(batch), strict=True):
                assert one.shape == two.shape
                assert np.abs(one - two).max(initial=0.0) < 1e-4
                greatest.append(np.abs(one).max(initial=0.0))
            source, destination = generator.permutation(3)[:2].tolist()
            turn = generator.integers(0, 4)
            for backend in (alone, together):
                if turn == 0:
                    backend.copy(source, destination, backend.length(source) // 2)
                elif backend.length(source) > 100:
                    backend.release(source)
    assert np.median(greatest) > 0.5 and len(greatest) > 60


def test_each_process_holds_its_heads_and_top_logits_equal_one_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[SlotCache] = []  # of `alone`, and of the leader

    class Noted(SlotCache):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            held.append(self)

    monkeypatch.setattr(torch_backend, "SlotCache", Noted)
    wanted = [TopLogitsSpec(3, 0.7, 264)]
    alone = TorchBackend(replace(OPTIONS, model=folder, tensor_parallel=1), has_top_logits=True)
    with closing(alone), spread(folder, has_top_logits=True) as together:
        assert (together.slots, together.kv_bytes) == (alone.slots, alone.kv_bytes)
        assert [each.key0.shape[1] for each in held] == [2, 1]
        batch = [Entry(1, 0, TEXT[:5], 4)]
        (one,), (two,) = alone.extend_top_logits(batch, wanted)[0], together.extend_top_logits(batch, wanted)[0]
        assert one.ids.tolist() == two.ids.tolist()
        assert np.allclose(one.logits, two.logits, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": Path("/nowhere")}, "process 2 of 2 is gone: no such model: /nowhere: the torch backend reads"),
        ({"device": "cuda"}, "process 2 of 2 is gone: .*(CUDA|NVIDIA|accelerator)"),
    ],
    ids=["after it has joined the group", "before"],
)
def test_follower_that_cannot_load_reports_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    tell = Team.tell

    def misdirected(team: Team, verb: str, *message: Any) -> None:
        tell(team, verb, *(replace(each, **changes) if isinstance(each, LoadOptions) else each for each in message))

    monkeypatch.setattr(Team, "tell", misdirected)
    began = time.monotonic()
    with pytest.raises(ModelLoadError, match=words):
        load("torch", replace(OPTIONS, model=folder))
    assert time.monotonic() - began < 60
    assert not torch.distributed.is_initialized()


def test_killed_follower_raises_engine_lost_at_once(folder: Path, followers: list["subprocess.Popen[bytes]"]) -> None:
    with spread(folder) as backend:
        backend.extend([Entry(0, 0, TEXT[:3], 0), Entry(1, 0, TEXT[:3], 0)])
        os.kill(followers[0].pid, signal.SIGKILL)
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(EngineLost, match=r"process 2 of 2 is gone: it ended with signal 9: .* restart"):
                backend.extend([Entry(0, 0, TEXT[:3], 0)])
        assert backend.length(0) == 0
        backend.copy(1, 0, 2)  # no error, although no pass will use the copy
    assert time.monotonic() - began < 5


def test_hanging_follower_is_killed(
    folder: Path, followers: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_team, "PASS_AT_MOST", 0.5)
    monkeypatch.setattr(follower_team, "CHECK_EVERY", 0.1)
    with spread(folder) as backend:
        os.kill(followers[0].pid, signal.SIGSTOP)
        with pytest.raises(EngineLost, match="a forward pass did not end within 0 s"):
            backend.extend([Entry(0, 0, TEXT[:3], 0)])


LEADER = """
import sys, time
from pathlib import Path
from specpair.engines.load_options import LoadOptions
from backends.registry import load
backend = load("torch", LoadOptions(Path(sys.argv[1]), device="cpu", threads=1, tensor_parallel=2))
print("ready", flush=True)
time.sleep(600)
"""


def test_followers_end_silently_with_their_leader(folder: Path) -> None:
    """Followers inherit the leader's standard error, which reaches its end when the last follower has ended."""
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert leader.stdout is not None
    assert leader.stdout.readline() == "ready\n"
    leader.kill()
    assert leader.communicate(timeout=20) == ("", "")


def test_follower_on_neuron_gets_a_core_of_its_own() -> None:
    """One core is visible to a process, and its device has the number of its rank all the same."""
    leader = {"NEURON_RT_VISIBLE_CORES": "4", "NEURON_RT_NUM_CORES": "4", "PYTHONPATH": "/mine", "HOME": "/home"}
    found = follower_team.environment_of(2, 4, [4, 5, 9, 12], leader)
    assert found["NEURON_RT_VISIBLE_CORES"] == "9" and "NEURON_RT_NUM_CORES" not in found
    assert [found[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")] == ["2", "2", "4", "4"]
    assert found["HOME"] == "/home" and found["PYTHONPATH"].endswith(os.pathsep + "/mine")
    others = follower_team.environment_of(2, 4, None, leader)
    assert others["NEURON_RT_VISIBLE_CORES"] == "4" and others["LOCAL_RANK"] == "2", "other devices: nothing claimed"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel 3: tiny has 2 heads of keys and values, .* choose a divisor of 2"),
        ({"model": None}, "the torch backend needs a model: a folder in Hugging Face layout, or a GGUF file"),
        ({"device": "cpu:0"}, "device cpu:0: tensor_parallel 2 takes cpu:0 and the next: say cpu"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
        ({"device": "mps"}, "tensor_parallel: devices of kind mps cannot work on one model"),
        ({"device": "cuda"}, "device cuda: of this machine, transformers spreads models over devices of kind cpu"),
    ],
)
def test_impossible_tensor_parallelism_is_refused_with_the_reason(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelLoadError, match=words):
        load("torch", replace(OPTIONS, **{"model": folder, **changes}))
