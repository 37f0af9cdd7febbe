"""What compilers are given: shapes by the user's settings, and a folder for compiled programs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.compilation import folder_of
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.paths import ROOT

pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")
pytest.importorskip("transformers", reason="needs the extra in requirements/torch.txt")

from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: E402 - it needs the extra

from backends.torch.compiling import (  # noqa: E402 - it needs the extra
    INDUCTOR_FOLDER,
    NEURON,
    NEURON_FOLDERS,
    buckets,
    check_compilation,
    compilation,
    keep_programs,
    programs_folder,
    spans,
)

pytestmark = pytest.mark.engine("torch")


@pytest.mark.parametrize(
    ("compiler", "asked", "shared", "wide"),
    [
        (NEURON, None, (1, 8, 32), [128, 512]),
        (NEURON, (4,), (4,), [128, 512]),
        (NEURON, (1, 16, 512), (1, 16), [512]),
        ("inductor", None, (1, 2, 4, 8, 16, 32), [64, 128, 256, 512]),
        ("inductor", (1, 8, 100, 700), (1, 8), [100, 700]),
    ],
)
def test_widths_are_those_of_the_user_else_of_the_compiler(
    compiler: str, asked: Any, shared: tuple[int, ...], wide: list[int]
) -> None:
    found = buckets(LoadOptions(compile_widths=asked), compiler, 4, 512)
    assert tuple(found.widths) == shared and list(found.wide_widths) == wide


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [1024, 4096, 4608]),
        ((512,), [512, 4608]),
        ((512, 4096), [512, 4608]),
        ((4096,), [4608]),
        ((512, 8192), [512, 4608]),
    ],
)
def test_spans_end_with_the_whole_cache(asked: Any, expected: list[int]) -> None:
    assert spans(LoadOptions(compile_spans=asked), "inductor", 4096, 4608) == expected


@pytest.mark.parametrize("asked", [(64, 512), (0, 4), (8, 4), (4, 4)])
def test_widths_without_a_shared_one_are_refused(asked: tuple[int, ...]) -> None:
    with pytest.raises(ModelLoadError, match=r"^compile_widths \d+,\d+: .* at least one of them from 1 to 32") as found:
        buckets(LoadOptions(compile_widths=asked), NEURON, 4, 512)
    assert found.value.setting == "compile_widths"


def test_widths_that_hold_no_whole_batch_are_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"^compile_widths 8,64: .* up to 512 tokens .*: add 512, or leave out"):
        buckets(LoadOptions(compile_widths=(8, 64)), NEURON, 4, 512)
    with pytest.raises(ModelLoadError, match=r"^compile_widths 8,1024: .* up to 512 tokens .*: 1024 would take time"):
        buckets(LoadOptions(compile_widths=(8, 1024)), NEURON, 4, 512)


@pytest.mark.parametrize("asked", [(), (0,), (1024, 512)])
def test_spans_out_of_order_are_refused(asked: tuple[int, ...]) -> None:
    with pytest.raises(ModelLoadError, match=r"^compile_spans .*: expected are ascending numbers of tokens$") as found:
        spans(LoadOptions(compile_spans=asked), NEURON, 4096, 4608)
    assert found.value.setting == "compile_spans"


@pytest.mark.parametrize(
    "setting", [{"compile_widths": (1,)}, {"compile_spans": (64,)}, {"compile_cache": Path("programs")}]
)
def test_settings_of_compilation_are_refused_where_nothing_is_compiled(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ModelLoadError, match=f"^{name}: nothing is compiled: set compile, or leave {name} out$"):
        check_compilation(LoadOptions(**setting), None)
    check_compilation(LoadOptions(**setting), "inductor")


def test_workers_are_no_choice_of_this_engine() -> None:
    with pytest.raises(ModelLoadError, match="compile_workers: the torch backend has no such choice"):
        check_compilation(LoadOptions(compile_workers=2), NEURON)


def test_programs_are_kept_where_the_user_says(tmp_path: Path) -> None:
    options = LoadOptions(compile_cache=tmp_path)
    environment: dict[str, str] = {}
    keep_programs(options, NEURON, environment)
    assert environment == dict.fromkeys(NEURON_FOLDERS, str(tmp_path / "neuron"))
    for before in ({}, {INDUCTOR_FOLDER: default_cache_dir()}, {INDUCTOR_FOLDER: ""}):
        environment = dict(before)
        keep_programs(options, "inductor", environment)
        assert environment == {INDUCTOR_FOLDER: str(tmp_path / "inductor")}
        assert programs_folder(options, "inductor", before) == str(tmp_path)
    environment = dict.fromkeys((*NEURON_FOLDERS, INDUCTOR_FOLDER), "/mine")
    for compiler in (NEURON, "inductor", None):
        keep_programs(options, compiler, environment)
        assert programs_folder(options, compiler, environment) == (None if compiler is None else "/mine")
    assert set(environment.values()) == {"/mine"}, "a user's own variables stay"


@pytest.mark.parametrize("compiler", [NEURON, "inductor"])
def test_second_model_may_have_a_folder_of_its_own(tmp_path: Path, compiler: str) -> None:
    environment: dict[str, str] = {}
    for name in ("first", "second"):
        keep_programs(LoadOptions(compile_cache=tmp_path / name), compiler, environment)
        assert set(environment.values()) == {str(tmp_path / name / compiler)}


@pytest.mark.parametrize("compiler", [NEURON, "inductor"])
def test_programs_are_kept_without_being_told(compiler: str) -> None:
    """The defaults of both compilers are folders that the next start of the machine empties."""
    environment: dict[str, str] = {}
    keep_programs(LoadOptions(), compiler, environment)
    cache = folder_of(None)
    assert cache is not None and set(environment.values()) == {str(cache / compiler)}
    assert compilation(LoadOptions(), compiler, "llama", 3, 2).folder == cache
    assert programs_folder(LoadOptions(), compiler, {}) == str(cache)


@pytest.mark.parametrize("given", [None, "mine"])
def test_inductor_reads_the_folder_after_all_imports(tmp_path: Path, given: str | None) -> None:
    """It writes its own default to the variable as it is imported. A variable of the user's counts more than ours."""
    code = (
        "import backends.torch.load, torch._inductor.compile_fx, pathlib, sys\n"
        "from specpair.engines.load_options import LoadOptions\n"
        "from torch._inductor.runtime.cache_dir_utils import cache_dir\n"
        "backends.torch.load.keep_programs(LoadOptions(compile_cache=pathlib.Path(sys.argv[1])), 'inductor')\n"
        "print(cache_dir())"
    )
    environment = {name: value for name, value in os.environ.items() if name != INDUCTOR_FOLDER}
    environment |= {} if given is None else {INDUCTOR_FOLDER: str(tmp_path / given)}
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "kept")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(tmp_path / (given or "kept/inductor")), done.stderr
