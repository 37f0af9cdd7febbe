"""A GGUF file on llama.cpp, without a context: its checks, metadata, weights and vocabulary."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.llama_cpp.head_files import is_head_alone
from backends.llama_cpp.library import lib, take_warnings
from models.errors import BadHead
from models.hub.gguf_check import check_model, read_parts
from specpair.command_line.start import interrupts_held
from specpair.engines.backend import DEFAULT_TEMPLATE, Progress
from specpair.engines.errors import ModelLoadError, NoGenerator
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import Kind, Vocabulary

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type numbers
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}

_TEMPLATE = "tokenizer.chat_template"


def load_model(
    path: Path, options: LoadOptions, progress: Progress | None, extra_buffers: bool, *, with_heads: bool = False
) -> Any:
    """Load a model's weights. Returns the library's handle, which the caller frees. Raises ModelLoadError.

    `with_heads`: also those of the MTP heads in its file.
    """
    params = lib.llama_model_default_params()
    params.load_mtp = with_heads
    params.use_extra_bufts = extra_buffers
    params.n_gpu_layers = options.gpu_layers
    params.load_mode = lib.LLAMA_LOAD_MODE_MMAP if options.mmap else lib.LLAMA_LOAD_MODE_NONE

    raised: list[BaseException] = []  # exceptions in the callback: ctypes would drop them

    def report(fraction: float, _user_data: object) -> bool:
        try:
            if progress is not None:
                progress(fraction)
        except BaseException as error:
            raised.append(error)
        return not (raised or held)

    callback = lib.llama_progress_callback(report)
    params.progress_callback = callback
    take_warnings()  # drop earlier messages
    model = None
    try:
        with interrupts_held() as held:
            model = lib.llama_model_load_from_file(str(path).encode(), params)
        if raised:
            raise raised[0]
    except BaseException:
        if model:
            lib.llama_model_free(model)
        raise
    if not model:
        raise ModelLoadError(f"llama.cpp could not load {path}: {take_warnings()}")
    return model


def kv_bytes_per_token(model: Any, kv_type: str, layers: int | None = None) -> int:
    """Bytes of the KV cache for one token of one slot, over `layers` layers; None: all, without those of heads."""
    usual = lib.llama_model_n_embd(model) // max(1, lib.llama_model_n_head(model))  # head width, unless one is stated
    widths = sum(stated_integer(model, f"attention.{part}_length") or usual for part in ("key", "value"))
    values = (layers or lib.llama_model_n_layer(model)) * lib.llama_model_n_head_kv(model) * widths
    return int(values * KV_BYTES[kv_type])


def stated(model: Any, key: str) -> str | None:
    """The value that the file states under the architecture's name and `key`; None if it states none."""
    return _value(model, f"{_value(model, 'general.architecture')}.{key}")


def stated_integer(model: Any, key: str) -> int | None:
    """The integer that the file states under the architecture's name and `key`; None if it states none."""
    text = stated(model, key)
    return None if text is None else int(text)


def check_generates(model: Any, name: str) -> None:
    """Raises NoGenerator for a model that does not generate token by token."""
    if stated_integer(model, "pooling_type"):
        sign = "its file states a pooling of all positions"
    elif stated(model, "attention.causal") == "false" or "bert" in (_value(model, "general.architecture") or ""):
        sign = "its tokens attend to later ones"
    elif lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
        sign = "it has an encoder"
    else:
        return
    raise NoGenerator(name, sign)


def chat_templates(model: Any) -> dict[str, str]:
    """The chat templates of a loaded model, by name."""
    keys = [_text(lib.llama_model_meta_key_by_index, model, at) for at in range(lib.llama_model_meta_count(model))]
    names = [key.removeprefix(f"{_TEMPLATE}.") for key in keys if key is not None and key.startswith(f"{_TEMPLATE}.")]
    found = {name: lib.llama_model_chat_template(model, name.encode()) for name in names}
    found |= {DEFAULT_TEMPLATE: lib.llama_model_chat_template(model, None)}
    return {name: template.decode() for name, template in found.items() if template}


def _value(model: Any, key: str) -> str | None:
    return _text(lib.llama_model_meta_val_str, model, key.encode())


def _text(read: Callable[..., int], model: Any, which: bytes | int) -> str | None:
    text = ctypes.create_string_buffer(256)
    found = read(model, which, text, len(text))
    return text.value.decode(errors="replace") if found >= 0 else None


_IN_FLOATS = ("norm.weight", ".bias", ".ssm_a", ".ssm_d")  # ends of names of tensors that are added or multiplied by


class LlamaVocabulary(Vocabulary):
    """Reads each token's bytes and class once from a loaded model; encodes with llama.cpp."""

    def __init__(self, model: Any) -> None:
        self._vocab = lib.llama_model_get_vocab(model)
        size = lib.llama_vocab_n_tokens(self._vocab)
        if size <= 0 or lib.llama_vocab_type(self._vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
            raise ModelLoadError("the model carries no vocabulary: choose a GGUF with its tokenizer inside")
        super().__init__(
            pieces=[self._piece(token) for token in range(size)],
            kinds=[self._kind(token) for token in range(size)],
            begin=lib.llama_vocab_bos(self._vocab),
            ends=frozenset(token for token in range(size) if lib.llama_vocab_is_eog(self._vocab, token)),
            end=lib.llama_vocab_eos(self._vocab),
        )
        self._adds_begin = self.begin is not None and lib.llama_vocab_get_add_bos(self._vocab)

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        begin = [self.begin] if add_begin and self._adds_begin and self.begin is not None else []
        flags = False, parse_control  # asked for begin tokens, the library adds end tokens and defaults, too
        while True:
            ids = (ctypes.c_int32 * room)()
            count = lib.llama_tokenize(self._vocab, data, len(data), ids, room, *flags)
            if count >= 0:
                return begin + ids[:count]
            room = -count  # a negative answer is the size needed

    def _piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def _kind(self, token: int) -> Kind:
        attributes = lib.llama_vocab_get_attr(self._vocab, token)
        if attributes & lib.LLAMA_TOKEN_ATTR_UNUSED:
            return Kind.UNUSED
        if attributes & (lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN):
            return Kind.CONTROL
        return Kind.ORDINARY


def read_gguf_vocabulary(path: Path) -> tuple[LlamaVocabulary, dict[str, str]]:
    """Read the vocabulary and the chat templates of a GGUF file, but not its weights. Raises ModelLoadError."""
    check_gguf(path)
    params = lib.llama_model_default_params()
    params.vocab_only = True
    take_warnings()  # drops earlier messages
    with interrupts_held():
        model = lib.llama_model_load_from_file(str(path).encode(), params)  # never freed: the vocabulary reads from it
    if not model:
        raise ModelLoadError(f"llama.cpp could not read the vocabulary of {path}: {take_warnings()}")
    check_generates(model, path.stem)
    return LlamaVocabulary(model), chat_templates(model)


def check_gguf(path: Path | None) -> Path:
    """Return `path` if llama.cpp can load this GGUF file. Raises ModelLoadError."""
    found = find_gguf(path)
    try:
        heads = read_parts(found)
        check_model(str(found), heads)
        if is_head_alone(heads):
            raise ModelLoadError(f"{found} has a head without its model: name the model's file")
    except (BadHead, OSError) as error:
        raise ModelLoadError(str(error)) from None
    if not lib.llama_supports_gpu_offload():
        for tensor in (tensor for head in heads for tensor in head.tensors):
            if tensor.name.endswith(_IN_FLOATS) and tensor.type_name != "F32":
                raise ModelLoadError(
                    f"{path} has the tensor {tensor.name!r:.99} in {tensor.type_name}, and llama.cpp takes it in F32 "
                    "alone on CPUs: fetch another file"
                )
    return found


def find_gguf(path: Path | None) -> Path:
    """Return `path` if it is a GGUF file. Raises ModelLoadError, since the library's own errors say little."""
    if path is None:
        raise ModelLoadError("the llama_cpp backend needs a model: the path of a GGUF file")
    if os.path.isdir(path):  # unlike Path.is_dir, it accepts names that no file can have
        raise ModelLoadError(f"{path} is a folder, and llama.cpp reads a GGUF file: the torch backend reads folders")
    if not os.path.isfile(path):
        raise ModelLoadError(f"no such model file: {path}")
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from None
    if begin != b"GGUF":
        raise ModelLoadError(f"{path} is not a GGUF file: it does not begin with the letters GGUF")
    return path
