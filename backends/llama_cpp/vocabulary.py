"""The vocabulary of a GGUF model, read through llama.cpp."""

import ctypes
import os
from pathlib import Path
from typing import Any

from backends.llama_cpp.library import interrupts_held, lib, take_warnings
from backends.llama_cpp.model import chat_templates, check_generates
from models.errors import BadHead
from models.hub.gguf_check import check_model, read_parts
from specpair.engines.errors import ModelLoadError
from specpair.engines.vocabulary import Kind, Vocabulary

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
        while True:
            ids = (ctypes.c_int32 * room)()  # asked for begin tokens, the library adds end tokens and defaults, too
            count = lib.llama_tokenize(self._vocab, data, len(data), ids, room, False, parse_control)
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
    """Return `path` if it is a GGUF file that llama.cpp can be given. Raises ModelLoadError."""
    found = find_gguf(path)
    try:
        heads = read_parts(found)
        check_model(str(found), heads)
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
