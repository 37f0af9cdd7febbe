"""The settings for a compiler: the shapes that it compiles a model for, and the folder of compiled programs.

The setting `compile_widths` replaces the widths of launches, `compile_spans` the spans of attention. Without them, the
sets depend on the compiler. Inductor compiles a shape in seconds to a minute, and a CUDA graph of a narrower shape
takes less time to run: it gets all powers of two. neuronx-cc takes minutes for a shape of a large model, and a pass
over few tokens is bound by reading the weights, so that 8 tokens take about as long as 2: it gets few, far apart.
"""

import os
from collections.abc import Mapping, MutableMapping, Sequence

from backends.buckets import NARROW, WIDTHS, Buckets
from backends.compilation import folder_of
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import COMPILATION, LoadOptions

NEURON = "neuron"  # a kind of device, and the compiler for it
# The variables of TorchNeuron (else /tmp/neff_cache, gone after a restart of the machine) and of the compiler beneath.
NEURON_FOLDERS = ("TORCH_NEURONX_NEFF_CACHE_DIR", "NEURON_COMPILE_CACHE_URL")
INDUCTOR_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_chosen: dict[str, str] = {}  # the folders that `keep_programs` has chosen, by variable
_FEW_WIDTHS = (1, 8, NARROW)  # one step of decoding, a usual draft, a long one
_PROMPT_WIDTH = 128  # tokens of a short prompt or a prompt's end, where widths are few
_SPAN = 1024  # positions in the shortest span of attention; each next is four times as long


def check_compilation(options: LoadOptions, compiler: str | None) -> None:
    """Raises ModelLoadError for settings of compilation that have no effect."""
    options.refuse("torch", "compile_workers")  # programs are compiled as they are first run, one after the other
    for name in COMPILATION:
        if compiler is None and getattr(options, name) is not None:
            raise ModelLoadError(f"{name}: nothing is compiled: set compile, or leave {name} out", name)


def keep_programs(
    options: LoadOptions, compiler: str | None, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Set the variables for `compiler`'s folder of programs, unless the user has set them.

    To be called before a device is used, and before followers are started, which inherit the variables.
    """
    if compiler is None or (folder := folder_of(options.compile_cache)) is None:
        return
    for name in _folder_variables(compiler):
        if _set_by_user(name, environment) is None:
            environment[name] = _chosen[name] = str(folder.absolute() / compiler)


def programs_folder(
    options: LoadOptions, compiler: str | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The folder or address where `compiler` will keep programs; None: it compiles nothing, or chooses itself.

    To be called before `keep_programs`.
    """
    if compiler is None:
        return None
    given = _set_by_user(_folder_variables(compiler)[0], environment)
    if given is not None:
        return given
    folder = folder_of(options.compile_cache)
    return None if folder is None else str(folder)


def _folder_variables(compiler: str) -> Sequence[str]:
    return NEURON_FOLDERS if compiler == NEURON else [INDUCTOR_FOLDER]


def _set_by_user(name: str, environment: Mapping[str, str]) -> str | None:
    """The value of a variable if the user has set it, not an earlier model, nor Inductor on its import."""
    value = environment.get(name) or None
    if value is not None and value == _chosen.get(name):
        return None
    if value is None or name != INDUCTOR_FOLDER:
        return value
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # no earlier than Inductor itself

    return None if value == default_cache_dir() else value


def buckets(
    options: LoadOptions, compiler: str | None, slots: int, batch_tokens: int, *, even: bool = False
) -> Buckets:
    """The launch shapes of a model with `slots` slots, in batches of `batch_tokens` tokens. Raises ModelLoadError.

    `even`: as in `Buckets`.
    """
    few = compiler == NEURON
    asked = options.compile_widths or ()
    widths = tuple(width for width in asked if width <= NARROW) or (_FEW_WIDTHS if few else WIDTHS)
    wide = tuple(width for width in asked if width > NARROW)
    if asked and (asked[0] > NARROW or min(asked) < 1 or list(asked) != sorted(set(asked))):
        raise ModelLoadError(
            f"compile_widths {_listed(asked)}: expected are ascending numbers of tokens, at least one of them from 1 "
            f"to {NARROW}: sessions share such passes",
            "compile_widths",
        )
    if wide and wide[-1] < batch_tokens:
        raise ModelLoadError(
            f"compile_widths {_listed(asked)}: a pass over one prompt has up to {batch_tokens} tokens (batch_tokens): "
            f"add {batch_tokens}, or leave out the widths above {NARROW} for the usual ones",
            "compile_widths",
        )
    if wide and wide[-1] >= 2 * max(batch_tokens, _PROMPT_WIDTH):
        raise ModelLoadError(
            f"compile_widths {_listed(asked)}: a pass over one prompt has up to {batch_tokens} tokens (batch_tokens): "
            f"{wide[-1]} would take time and memory for padding only",
            "compile_widths",
        )
    if wide or not few:
        return Buckets(slots, batch_tokens, compiler is not None, widths, wide or None, even)
    if batch_tokens <= widths[-1]:
        return Buckets(slots, batch_tokens, True, widths, ())
    whole = 1 << (max(batch_tokens, 2 * NARROW) - 1).bit_length()
    return Buckets(slots, batch_tokens, True, widths, sorted({min(_PROMPT_WIDTH, whole), whole}))


def spans(options: LoadOptions, compiler: str | None, context_length: int, positions: int) -> list[int]:
    """The spans of attention that launches are compiled for, the last of all `positions` of a slot's cache: for its
    context of `context_length` tokens and padding. Leaves out spans of a longer context, such as the target's. Raises
    ModelLoadError."""
    asked = options.compile_spans
    if asked is not None:
        if not asked or min(asked) < 1 or list(asked) != sorted(set(asked)):
            raise ModelLoadError(
                f"compile_spans {_listed(asked)}: expected are ascending numbers of tokens", "compile_spans"
            )
        return [*(span for span in asked if span < context_length), positions]
    # Where each is expensive, none is compiled that saves less than half of the longest.
    most = positions // 2 if compiler == NEURON else positions - 1
    found = []
    span = _SPAN
    while span <= most:
        found.append(span)
        span *= 4
    return [*found, positions]


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
