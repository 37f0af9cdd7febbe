"""What goes into layers of a target, for heads that read it. llama-cpp-python has no binding for these functions."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from backends.llama_cpp.head_files import SETTING
from backends.llama_cpp.head_slots import Hidden
from backends.llama_cpp.library import floats, ggml, lib
from specpair.engines.errors import ModelLoadError

# Names in C, and in C++ as GCC and Clang export them. Those of other compilers were not tried.
_SET = "llama_set_embeddings_layer_inp", "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
_GET = "llama_get_embeddings_layer_inp", "_Z30llama_get_embeddings_layer_inpP13llama_contextj"


class LayerInputs:
    """The inputs of some layers in the last pass of a context, side by side. `width`: numbers of a row."""

    def __init__(self, context: Any, layers: Sequence[int]) -> None:
        """`layers`: that the model has, of an architecture that hands them out: for others the library aborts.

        Raises ModelLoadError if this build of the library lacks the functions.
        """
        number, row = ctypes.c_uint32, ctypes.POINTER(ctypes.c_float)
        switch = exported(_SET, [ctypes.c_void_p, number, ctypes.c_bool], None)
        self._get = exported(_GET, [ctypes.c_void_p, number], row)
        self._context, self._layers = context, layers
        self._layer_width = int(lib.llama_model_n_embd(lib.llama_get_model(context)))
        self.width = self._layer_width * len(layers)
        for layer in layers:
            switch(context, layer, True)

    def read(self, count: int) -> Hidden:
        """The rows of the last pass's first `count` tokens, shape (count, width). They are copies."""
        return np.concatenate(
            [floats(self._get(self._context, layer), count, self._layer_width) for layer in self._layers], axis=1
        )


def exported(names: Sequence[str], arguments: Sequence[Any], result: Any) -> Any:
    """The library's function of the first of these names that it has. Raises ModelLoadError if it has none."""
    for name in names:
        function = getattr(ggml, name, None)
        if function is not None:
            function.argtypes, function.restype = arguments, result
            return function
    raise ModelLoadError(
        f"{SETTING}: this build of llama.cpp does not export {names[0]}, which EAGLE-3 and DFlash need: leave it out",
        SETTING,
    )
