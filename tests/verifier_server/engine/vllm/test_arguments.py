"""Arguments that vLLM gets, and those that are refused."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from verifier_server.engine.vllm import load
from verifier_server.engine.vllm.load import engine_arguments

pytestmark = [pytest.mark.engine("vllm"), pytest.mark.filterwarnings("ignore")]  # vLLM and its libraries warn


@pytest.mark.parametrize(
    ("given", "options", "wrong"),
    [
        ({"no_such": 1}, {}, "vllm_args: no_such is no engine argument of this vLLM: see AsyncEngineArgs"),
        ({"scheduler_cls": "x.Y"}, {}, "vllm_args: scheduler_cls is set by the verifier: leave it out"),
        ({"model": "x"}, {}, "vllm_args: model is set by the verifier: set VERIFIER_MODEL"),
        ({"spec_method": "ngram"}, {}, "vllm_args: spec_method is set by the verifier: set speculative_config"),
        (
            {"speculative_config": {"method": "medusa"}},
            {},
            "vllm_args: speculative_config: the method must be ngram, eagle, eagle3, mtp: set one of them, or leave it "
            "out and set VERIFIER_DRAFT_MODEL or VERIFIER_DRAFT_BACKEND",
        ),
        (
            {"speculative_config": {"method": "mtp"}},
            {},
            "vllm_args: speculative_config: num_speculative_tokens must be 1 to 128, got None",
        ),
        (
            {"speculative_config": {"method": "mtp", "rejection-sample-method": "block"}},
            {},
            "vllm_args: speculative_config: rejection_sample_method does not work beside drafts from clients: leave it "
            "out",
        ),
        (
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}, "data_parallel_size": 2},
            {},
            "vllm_args: speculative_config: with data_parallel_size, vLLM cannot draft fewer tokens than a step has "
            "room for: leave one of the two out",
        ),
        ({}, {"threads": 2}, "threads: the vllm backend has no such choice, leave it out"),
    ],
)
def test_bad_argument_is_named(given: dict[str, Any], options: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=f"^{re.escape(wrong)}$"):
        engine_arguments(LoadOptions(**options), given, 16, tmp_path)


@pytest.mark.parametrize(
    ("own", "max_drafts", "room"),
    [
        ({"method": "mtp", "num_speculative_tokens": 1}, 16, 16),
        ({"method": "mtp", "num_speculative_tokens": 3}, 16, 18),  # heads of three tokens want a multiple of three
        ({"method": "eagle3", "num_speculative_tokens": 5, "model": "/models/head"}, 128, 125),
        ({"method": "ngram", "num-speculative-tokens": 20, "prompt_lookup_max": 4}, 16, 20),
    ],
)
def test_step_has_room_for_drafts_from_outside_and_vllm_drafts_fewer(
    folder: Path, own: dict[str, Any], max_drafts: int, room: int
) -> None:
    given = {"speculative_config": own}
    asked = {name.replace("-", "_"): value for name, value in own.items()}
    most = asked["num_speculative_tokens"]
    limits = {"num_speculative_tokens": room, "num_speculative_tokens_per_batch_size": [[1, 1, most]]}
    assert engine_arguments(LoadOptions(), given, max_drafts, folder).speculative_config == asked | limits


def test_model_runner_whose_samplers_are_others_is_refused() -> None:
    config = SimpleNamespace(use_v2_model_runner=True)
    with pytest.raises(ModelLoadError, match="model runner V2 has another sampler: leave out what asks for V2"):
        asyncio.run(load.start_core(SimpleNamespace(create_engine_config=lambda _usage: config)))


def test_wrong_setting_of_vllms_own_method_is_told(folder: Path) -> None:
    own = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 5, "prompt_lookup_max": 4}
    arguments = engine_arguments(LoadOptions(slots=2), {"speculative_config": own}, 16, folder)
    with pytest.raises(
        ModelLoadError, match=r"^vLLM did not start: .*prompt_lookup_min=5 must be <= prompt_lookup_max=4"
    ):
        asyncio.run(load.start_core(arguments))


def test_another_version_of_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "VERSIONS", ("0.1.0",))
    with pytest.raises(ModelLoadError, match=r"^vLLM 0\.32\.0 is installed, and the plug-ins were written for 0\.1\.0"):
        load.check_version()
