"""The memory that llama.cpp has for a model: the machine's, a GPU's, or that of both."""

from backends.llama_cpp.devices import gpu_bytes
from backends.llama_cpp.library import lib
from backends.llama_cpp.model import KV_BYTES
from backends.machine import available_bytes
from specpair.engines.load_options import LoadOptions
from specpair.engines.room import Room


def room(options: LoadOptions) -> Room:
    """What there is for a model. With `gpu_layers` -1 all of it goes to GPUs, with another number a part of it."""
    gpus = gpu_bytes() if options.gpu_layers != 0 and lib.llama_supports_gpu_offload() else []
    host = 0 if gpus and options.gpu_layers == -1 else available_bytes()
    return Room(host + sum(gpus), cached=KV_BYTES[options.kv_type])
