"""Tensor parallelism: one process per device holds a part of every layer, and all processes run the same passes.

Transformers' tensor-parallel plan for the model determines the parts: it splits matrices so that each process has some
of the heads and few sums over processes are needed. All processes run the same code on the same inputs. Process 0, the
leader, serves requests; the others are its followers.

The device of process i has the number i. This holds for NeuronCores, too, although each process sees one core only:
TorchNeuron numbers the device of a process by LOCAL_RANK once the process group exists, and transformers does the same.
"""

import os
import socket
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from transformers.distributed.tensor_parallel import get_kv_heads_per_rank
from transformers.distributed.utils import get_distributed_backend

from backends.hugging_face import model_name
from backends.machine import cores
from backends.neuron import show
from backends.torch.backend import TorchBackend
from backends.torch.compiling import NEURON
from backends.torch.follower_team import LOOPBACK, Team, ranks
from backends.torch.launch import LaunchInputs
from backends.torch.read_model import find_device, heads_of, read_config
from backends.torch.top_logits import Region
from specpair.engines.backend import Entry, Progress
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import LoadOptions

T = TypeVar("T")
_SKEW = timedelta(minutes=30)  # how much longer than the others a process may take to load or compile


class ModelShard(TorchBackend):
    """The part of the model in process `number`. `store`: where the processes meet. The leader has a `LeaderShard`."""

    def __init__(
        self,
        number: int,
        store: dist.Store,
        options: LoadOptions,
        progress: Progress | None = None,
        *,
        compiler: str | None = None,
        has_top_logits: bool | None = None,
    ) -> None:
        self.devices = self._size = options.tensor_parallel or 1
        self._number, self._store, self._shared = number, store, 0
        kind = _kind(options)
        device = torch.device(kind) if kind == "cpu" else torch.device(kind, number)
        _meet(number, self._size, store, device)
        threads = options.threads or (max(1, cores() // self._size) if kind == "cpu" else None)
        own = replace(options, device=str(device), threads=threads)
        super().__init__(own, progress, compiler=compiler, has_top_logits=has_top_logits)
        self.kv_bytes *= self._size

    def follow(self, verb: str, arguments: Sequence[Any]) -> None:
        """Run a message of the leader: a forward pass ("pass"), else a method of the KV cache."""
        if verb != "pass":
            self._write(verb, *arguments)
        else:
            self._pass(*arguments)

    def close(self) -> None:
        super().close()
        self._store = None

    def _free_bytes(self) -> int | None:
        """Free bytes in the process with the least memory, so that all processes get the same number of slots.

        Where some processes do not know theirs, the others' count. The numbers pass through the store, because a device
        may compute in 32 bits, which hold no such number.
        """
        free = super()._free_bytes()
        if free is not None and self._device.type == "cpu":
            free //= self._size  # the processes share this memory
        assert self._store is not None
        self._shared += 1
        keys = [f"free bytes {self._shared} of {number}" for number in range(self._size)]
        self._store.set(keys[self._number], "" if free is None else str(free))
        self._store.wait(keys, _SKEW)
        return min((int(found) for key in keys if (found := self._store.get(key))), default=None)


class LeaderShard(ModelShard):
    """The leader's part: it serves requests and makes the followers run the same passes."""

    def __init__(
        self,
        options: LoadOptions,
        progress: Progress | None = None,
        *,
        compiler: str | None = None,
        has_top_logits: bool | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        """Start the followers, and load the model in all processes. Raises ModelLoadError.

        `cores`: the NeuronCores that the model takes, one for each process; None: it takes other devices.
        """
        check_spread(options)
        self._leads = False  # during loading, all parts run the same passes without being told
        self._team = Team(options.tensor_parallel or 1, cores)
        if cores is not None:
            lead_on_neuron(cores, os.environ)
        try:
            self._team.wait_until_started()
            store = open_store(self._team.port, self._team.size)  # before loading, which may end its server
            self._team.tell("load", options, compiler)
            super().__init__(0, store, options, progress, compiler=compiler, has_top_logits=has_top_logits)
        except BaseException as error:
            found = isinstance(error, Exception) and self._team.found_lost()
            self._end()
            if found and str(error) not in str(self._team.lost):  # else all processes fail for the same reason
                raise ModelLoadError(str(self._team.lost)) from error
            raise
        self._leads = True

    def close(self) -> None:
        """Free the model. All processes leave the group together; then the followers exit. The first follower serves
        the store."""
        in_order = self._leads and self._team.lost is None
        self._leads = False
        super().close()
        if in_order:
            self._team.tell("end")
            dist.destroy_process_group()
        self._end()

    def _end(self) -> None:
        self._team.end()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _launched(
        self, batch: Sequence[Entry], take: Callable[[Tensor, list[int], list[Region]], list[T]]
    ) -> list[list[T]]:
        with self._team.in_pass():
            return super()._launched(batch, take)

    def _pass(self, inputs: LaunchInputs) -> Tensor:
        if self._leads:
            self._team.tell("pass", inputs)
        return super()._pass(inputs)

    def _write(self, verb: str, *arguments: Any) -> None:
        if self._leads:
            self._team.tell(verb, *arguments)
        super()._write(verb, *arguments)


def check_spread(options: LoadOptions) -> None:
    """Raises ModelLoadError if the model or devices rule out tensor parallelism, before a process starts."""
    size, kind = options.tensor_parallel or 1, _kind(options)
    if dist.is_initialized():
        reason = "this process is in a process group already: one such model is the most"
        raise ModelLoadError(f"tensor_parallel: {reason}", "tensor_parallel")
    if options.device is not None and torch.device(options.device).index is not None:
        raise ModelLoadError(
            f"device {options.device}: tensor_parallel {size} takes {kind}:0 and the next: say {kind}", "device"
        )
    try:
        get_distributed_backend(kind)
    except ValueError:
        raise ModelLoadError(
            f"tensor_parallel: devices of kind {kind} cannot work on one model: leave it out", "tensor_parallel"
        ) from None
    best = find_device(None).type  # transformers always uses this one
    if kind != best:
        raise ModelLoadError(
            f"device {kind}: of this machine, transformers spreads models over devices of kind {best}: "
            "leave device out",
            "device",
        )
    if kind != "cpu" and torch.accelerator.device_count() < size:
        there = f"there are {torch.accelerator.device_count()} {kind} devices"
        raise ModelLoadError(f"tensor_parallel {size}: {there}", "tensor_parallel")
    config = read_config(options.model)
    assert options.model is not None
    name, plan = model_name(options.model), config.base_model_tp_plan
    if not plan:
        raise ModelLoadError(
            f"tensor_parallel {size}: transformers has no plan by which {name} ({config.model_type}) could be spread: "
            "leave it out",
            "tensor_parallel",
        )
    heads, _ = heads_of(config)
    if get_kv_heads_per_rank(plan, heads, size) is None:
        raise ModelLoadError(
            f"tensor_parallel {size}: {name} has {heads} heads of keys and values, which cannot be shared out evenly: "
            f"choose a divisor of {heads}",
            "tensor_parallel",
        )


def lead_on_neuron(cores: Sequence[int], environment: MutableMapping[str, str]) -> None:
    """Claim the first of `cores` for this process, the leader, and state its rank in the variables of `torchrun`.

    TorchNeuron reads the rank from them as the process group is made. In a process without them it would wait for word
    from the other processes, which have them and send none.
    """
    environment.update({name: value for name, value in ranks(0, len(cores)).items() if name.startswith("LOCAL_")})
    show([cores[0]], environment)


def _kind(options: LoadOptions) -> str:
    """The type of device to use, such as "cpu" or "cuda". Raises ModelLoadError."""
    if options.device is None:
        return str(find_device(None).type)
    try:
        return str(torch.device(options.device).type)
    except RuntimeError as error:
        raise ModelLoadError(f"device {options.device!r} cannot be used here: {first_line(error)}", "device") from None


def open_store(port: int, size: int, bound: int | None = None) -> dist.Store:
    """Connect to the key-value store where `size` processes meet. One process serves it: the one with `bound`, the file
    descriptor of a socket bound to `port`."""
    return dist.TCPStore(LOOPBACK, port, size, bound is not None, wait_for_workers=False, master_listen_fd=bound)


def _meet(number: int, size: int, store: dist.Store, device: torch.device) -> None:
    """Join the process group of all `size` parts, as process `number`."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:  # by default Gloo listens at the address of the machine's name
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    if device.type not in ("cpu", NEURON):  # TorchNeuron sets it with the group, and knows no device number before
        torch.accelerator.set_device_index(number)
    backend = get_distributed_backend(device.type)
    dist.distributed_c10d._world.group_count = 0  # a group's key in the store; a failed earlier group has raised it
    dist.init_process_group(
        backend,
        store=store,
        rank=number,
        world_size=size,
        timeout=_SKEW,
        device_id=device if backend == "nccl" else None,  # faster; not all other backends support it
    )
