"""Checks of the files that hold a head, before llama.cpp reads them: it ends the process over some of them.

MTP      layers of the target, in its file or in a file of their own
EAGLE-3  a file that names three layers of the target, whose inputs it reads (2503.01840)
DFlash   a file that names layers of the target, and drafts a block of tokens in one pass (2602.06036)
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import BadHead
from models.hub.gguf_check import check_model, read_parts
from models.hub.gguf_head import TYPES, GgufHead, TensorInfo
from models.hub.gguf_layers import draft_head, head_blocks
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import HEAD, NO_HEAD, LoadOptions

MTP, EAGLE3, DFLASH = "mtp", "eagle3", "dflash"  # kinds of heads; the last two are architectures of files, too
SETTING = "draft_head"  # that names a file with a head

# Architectures whose graph for heads llama.cpp has, and whether it takes several. It ends the process over others, and
# where `nextn.eh_proj` is missing. That of gemma4 shares the target's cache, which is another contract.
_SINGLE = ("bailingmoe3", "cohere2moe", "deepseek2", "glm4moe", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next")
_SEVERAL = ("deepseek32", "glm-dsa", "hy-v3", "mimo2", "step35")
# Architectures whose graph hands out the inputs of its layers. llama.cpp ends the process over others.
EXPORTING = (
    *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "lfm2", "lfm2moe", "llama", "mimo2"),
    *("minimax-m2", "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next"),
)
_EAGLE_LAYERS = 3
_USUAL_BLOCK = 16  # tokens of DFlash, where the file states none
_I64 = next(kind for kind, (name, _, _) in TYPES.items() if name == "I64")
# Tensors of DFlash's successors, whose drafts are picked in another way.
_OTHER_DFLASH = ("markov_w1.weight", "selector_hidden.weight", "hc_head_fn.weight")


class HeadFile(NamedTuple):
    """A head that was checked against its target. `path`: None: it is in the target's own file."""

    kind: str
    path: Path | None = None
    heads: int = 1  # how many there are
    layers: tuple[int, ...] = ()  # of the target, whose inputs it reads
    block: int = 0  # tokens of a pass that drafts, with the one that is known
    causal: bool = True  # whether a token of the block attends to those before it only


def head_of(path: Path, options: LoadOptions) -> HeadFile | None:
    """The head to load for a checked GGUF file of a target; None: none. Raises ModelLoadError if there is none, and one
    is required, and for a file with a head that is not for this target."""
    if options.head == NO_HEAD:
        return None
    target = read_parts(path)
    if options.head_file is not None:
        return _Check(options.head_file, target, path.stem).found()
    count, reason = count_heads(target)
    if not count and options.head == HEAD:
        raise ModelLoadError(f"draft: {path.stem} cannot draft by itself: {reason}", "draft")
    return HeadFile(MTP, heads=count) if count else None


def count_heads(parts: Sequence[GgufHead]) -> tuple[int, str]:
    """How many heads of a model llama.cpp can run, and why there is none if it is 0. `parts`: of the model's file."""
    found, architecture = draft_head(parts), parts[0].get("general.architecture")
    if found is None and head_blocks(parts[0]):
        return 0, "its file names an MTP head, but lacks its tensors (nextn.eh_proj.weight): fetch another file"
    if found is None or found.kind != "mtp":
        return 0, "its file has no MTP head: choose another model, or another file of this one"
    if architecture not in (*_SINGLE, *_SEVERAL):
        return 0, f"llama.cpp runs no MTP head of the architecture {architecture}"
    if found.layers > 1 and architecture in _SINGLE:
        return 0, f"llama.cpp runs one MTP head of the architecture {architecture}, and its file has {found.layers}"
    return found.layers, ""


class _Check:
    """Checks a file with a head against the target's. `found` raises ModelLoadError with the first fault."""

    def __init__(self, path: Path, target: Sequence[GgufHead], name: str) -> None:
        """`target`: heads of its files. `name`: the target's."""
        self._path, self._target, self._name = path, target[0], name
        try:
            parts = read_parts(path)
            check_model(str(path), parts, lone_head=True)
        except (BadHead, OSError) as error:
            raise ModelLoadError(f"{SETTING}: {error}", SETTING) from None
        self._parts, self._head = parts, parts[0]
        if len(parts) > 1:
            raise self._fault(f"it is one of {len(parts)} parts, and a head is in one file: join them")
        self._tensors = {tensor.name: tensor for part in parts for tensor in part.tensors}
        self._kind = self._head.get("general.architecture")

    def found(self) -> HeadFile:
        own, target = self._vocabulary(self._head), self._vocabulary(self._target)
        if own != target:
            raise self._fault(f"it has {own} tokens, and {self._name} has {target}")
        if self._kind == EAGLE3:
            layers = self._layers()
            if len(layers) != _EAGLE_LAYERS:
                raise self._fault(f"it reads {len(layers)} layers, and an EAGLE-3 head reads {_EAGLE_LAYERS}")
            self._check_width("target_hidden_size")
            if self._head.stated("block_count") != 1:
                raise self._fault(f"it has {self._head.stated('block_count')} blocks, and an EAGLE-3 head has 1")
            self._check_layers_of_file()
            return HeadFile(EAGLE3, self._path, layers=layers)
        if self._kind == DFLASH:
            layers = self._layers()
            self._check_width("embedding_length")
            self._check_layers_of_file()
            other = [name for name in _OTHER_DFLASH if name in self._tensors]
            if other:
                raise self._fault(f"it is of a later kind of DFlash (tensor {other[0]}), which is not run here")
            tokens, mask = self._vocabulary(self._head), self._head.get("tokenizer.ggml.mask_token_id")
            if type(mask) is not int or not 0 <= mask < tokens:
                raise self._fault(f"its mask token (tokenizer.ggml.mask_token_id) is {mask!r:.99}")
            block = self._head.stated("block_size") or _USUAL_BLOCK
            if type(block) is not int or block < 2:
                raise self._fault(f"its dflash.block_size is {block!r:.99}, and must be at least 2")
            causal = self._head.stated("attention.causal") is True
            return HeadFile(DFLASH, self._path, layers=layers, block=block, causal=causal)
        return self._mtp()

    def _mtp(self) -> HeadFile:
        architecture = self._target.get("general.architecture")
        if self._kind != architecture:
            raise self._fault(f"its architecture is {self._kind}, and that of {self._name} is {architecture}")
        count, reason = count_heads(self._parts)
        if not count:
            raise self._fault(reason)
        head = draft_head(self._parts)
        if head is None or not head.alone:
            raise self._fault("it has a whole model beside the head: name it as the model, and leave this out")
        self._check_width("embedding_length")
        return HeadFile(MTP, self._path, heads=count)

    def _fault(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{SETTING}: {self._path} cannot draft for {self._name}: {reason}", SETTING)

    def _vocabulary(self, head: GgufHead) -> int:
        return len(head.get("tokenizer.ggml.tokens") or ())

    def _layers(self) -> tuple[int, ...]:
        """The layers of the target that the file names."""
        architecture = self._target.get("general.architecture")
        if architecture not in EXPORTING:
            raise self._fault(
                f"llama.cpp hands out no inputs of layers of the architecture {architecture}, but of "
                f"{', '.join(EXPORTING)}"
            )
        layers: Any = self._head.stated("target_layers")
        count = (self._target.stated("block_count") or 0) - (self._target.stated("nextn_predict_layers") or 0)
        if not (isinstance(layers, list) and layers):
            raise self._fault(f"it names no layers of its target ({self._kind}.target_layers)")
        if not all(type(each) is int and 0 <= each < count for each in layers):
            raise self._fault(f"it reads the inputs of the layers {layers!r:.99}, and the model has 0 to {count - 1}")
        return tuple(layers)

    def _check_width(self, key: str) -> None:
        own, target = self._head.stated(key), self._target.stated("embedding_length")
        if own != target:
            raise self._fault(f"its {self._kind}.{key} is {own}, and hidden states of the model have {target} numbers")

    def _check_layers_of_file(self) -> None:
        """Raises for a file over which llama.cpp would end the process."""
        lengths = {self._head.stated(f"attention.{part}_length") for part in ("key", "value")}
        if len(lengths) > 1:
            raise self._fault("its keys and values have other lengths")
        shared = [name for name in ("token_embd.weight", "output.weight") if name not in self._tensors]
        own, target = self._head.stated("embedding_length"), self._target.stated("embedding_length")
        if shared and own != target:
            raise self._fault(f"it takes {shared[0]} from the model, and its embedding_length is {own}, not {target}")
        mapped = self._tensors.get("d2t")
        if mapped is not None:
            if shared[-1:] == ["output.weight"] or mapped.kind != _I64:
                raise self._fault("its d2t, the tokens that it knows, comes without an output.weight, or is not in I64")
            self._check_tokens(mapped)

    def _check_tokens(self, mapped: TensorInfo) -> None:
        """`mapped`: the target's token of each of the head's."""
        count = mapped.shape[0]
        with self._path.open("rb") as file:
            file.seek(mapped.offset)
            data = file.read(8 * count)
        most = self._vocabulary(self._target)
        if len(data) < 8 * count or not all(0 <= each < most for (each,) in struct.iter_unpack("<q", data)):
            raise self._fault(f"its d2t names tokens beyond the {most} of the model, or it is cut: fetch it again")
