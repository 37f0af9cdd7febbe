"""Imports the real transformers-neuronx from its source, with the compiler and the device replaced by an interpreter.

AWS publishes the library's Python source, but it needs packages that are closed and run on the chip alone. Replaced are
exactly these:

* torch_neuronx: what writes HLO (`program`), and `torch.ops.neuron` and `torch.classes.neuron` (`device`);
* libneuronxla and neuronxcc: the compiler. It runs in this process, where the library would start others;
* transformers' reading of config.json: version 5 has moved the rotary positions' entries, see
  requirements/neuron-legacy.txt.

All else is the library's own code: its checks, its padding, the programs that it writes, what it puts where in the
memory of each core, and the order in which it does so.
"""

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tests.transformers_neuronx import device, program

_NAME = "transformers_neuronx"
INSTALLED = "installed"  # the value of TNX_SRC that means the installed library, on the chip


def on_chip() -> bool:
    """Whether the tests run the installed library, with nothing replaced."""
    return os.environ.get("TNX_SRC") == INSTALLED


@contextmanager
def library() -> Iterator[ModuleType]:
    """A context in which `import transformers_neuronx` gives the library that TNX_SRC names."""
    if on_chip():
        yield importlib.import_module(_NAME)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # work as small as this takes many times as long on more
    try:
        with real_library(Path(os.environ["TNX_SRC"])) as found:
            yield found
    finally:
        torch.set_num_threads(threads)


class InProcess:
    """Stands for ProcessPoolExecutor: does the work at once. `counts` are the numbers of processes asked for."""

    counts: list[int] = []  # noqa: RUF012 - of the whole process, as processes are

    def __init__(self, count: int) -> None:
        self.counts.append(count)

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        return SimpleNamespace(result=lambda: result)


class _Config:
    """Stands for AutoConfig: the entries of config.json, as transformers 4 gives them."""

    @staticmethod
    def from_pretrained(folder: str) -> SimpleNamespace:
        return SimpleNamespace(**json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))


def _closed_packages() -> dict[str, ModuleType]:
    """Modules by their names."""
    contents: dict[str, dict[str, Any]] = {
        "torch_neuronx": {},
        "torch_neuronx.pyhlo": {},
        "torch_neuronx.pyhlo.scribe": {"HloScribe": program.HloScribe, "HloShape": program.HloShape},
        "torch_neuronx.pyhlo.xla_data_pb2": {"PrimitiveType": program.PrimitiveType},
        "torch_neuronx.pyhlo.constant": {},
        "torch_neuronx.pyhlo.constant.serialize_torch": {"serialize_torch": None},
        "torch_neuronx.proto": {},
        "torch_neuronx.proto.metaneff_pb2": {"MetaTensor": SimpleNamespace(DataType=_AnyName())},
        "libneuronxla": {"neuron_xla_compile": device.neuron_xla_compile},
        "libneuronxla.neuron_cc_cache": {
            "CacheUrl": SimpleNamespace(get_cache_url=lambda: None),
            "create_compile_cache": lambda url: None,
        },
        "neuronxcc": {"__version__": "interpreter"},
        "neuronxcc.nki": {"trace": None, "FrameworkKernel": object},
        "neuronxcc.nki.language": {},
        "neuronxcc.nki.kernels": {},
        "neuronxcc.nki.kernels.attention": {"flash_fwd": None, "attention_isa_kernel": None},
    }
    modules = {}
    for name, content in contents.items():
        modules[name] = module = ModuleType(name)
        module.__path__ = []  # so that it may have submodules
        vars(module).update(content)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(modules[parent], own, module)
    return modules


class _AnyName:
    """Has every attribute: names of types in an older format of compiled files, which the library does not write."""

    def __getattr__(self, name: str) -> str:
        return name


@contextmanager
def real_library(source: Path) -> Iterator[ModuleType]:
    """A context in which `import transformers_neuronx` gives the library in the folder `source`."""
    assert _NAME not in sys.modules, "another transformers_neuronx is imported"
    closed = _closed_packages()
    sys.modules.update(closed)
    sys.path.insert(0, str(source))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    torch.ops.neuron, torch.classes.neuron = device.OPS, device.CLASSES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own making
            library = importlib.import_module(_NAME)
        sys.modules[f"{_NAME}.base"].ProcessPoolExecutor = InProcess  # type: ignore[attr-defined]
        sys.modules[f"{_NAME}.module"].AutoConfig = _Config  # type: ignore[attr-defined]
        yield library
    finally:
        del torch.ops.neuron, torch.classes.neuron
        sys.dont_write_bytecode = before
        sys.path.remove(str(source))
        for name in [name for name in sys.modules if name in closed or name.split(".")[0] == _NAME]:
            del sys.modules[name]
