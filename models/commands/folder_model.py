"""What a folder of safetensors says of its model."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from models.commands.described import Described, Layers, ListedTokens
from models.hub.errors import BadHead
from models.hub.safetensors_head import StoredTensor
from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import (
    StatedTokens,
    ids_of,
    listed,
    named_ends,
    read_chat_templates,
    read_json,
    read_tokens,
)
from specpair.engines.vocabulary import if_control

_STATES = ("mamba_d_state", "mamba_n_heads", "state_size", "conv_L_cache", "linear_conv_kernel_dim")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_USED = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_TYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16", "F8_E4M3": "FP8", "F8_E5M2": "FP8"}
_NO_ATTENTION = ("linear", "mamba", "conv", "recurrent")  # in the names of types of layers


class FolderModel(Described):
    """A model by its JSON files, which are read at once, and by the heads of its weights."""

    def __init__(self, name: str, folder: Path, tensors: Sequence[StoredTensor]) -> None:
        """Raises BadHead."""
        self.name, self._tensors = name, tensors
        self.weight_bytes = sum(tensor.size for tensor in tensors)
        try:
            config = read_json(folder / "config.json")
            self._chat_templates = read_chat_templates(folder)
            self._stated = read_tokens(folder) if (folder / "tokenizer.json").is_file() else None
        except ModelLoadError as error:
            raise BadHead(str(error)) from None
        self._config: dict[str, Any] = config | (config.get("text_config") or {})  # of models that read images, too
        self.architecture = str(config.get("model_type") or "unknown")
        quantized = config.get("quantization_config") or config.get("quantization") or {}
        self.quantization = _quantized(quantized) if quantized else self._most

    @property
    def _most(self) -> str:
        """The type that most numbers have."""
        counts: dict[str, int] = {}
        for tensor in self._tensors:
            counts[tensor.kind] = counts.get(tensor.kind, 0) + tensor.numbers
        most = max(counts, key=lambda kind: counts[kind], default="?")
        return _TYPES.get(most, most)

    @property
    def parameters(self) -> int:
        """Of a quantised model, the numbers that its files hold, of which some have several weights."""
        return sum(tensor.numbers for tensor in self._tensors)

    @property
    def bytes_a_token(self) -> int:
        if self.layers.experts is None:
            return self.weight_bytes
        used, count = self.layers.experts
        of_experts = sum(tensor.size for tensor in self._tensors if ".experts." in tensor.name)
        return self.weight_bytes - of_experts * (count - used) // count

    @property
    def context(self) -> int:
        return self._whole("max_position_embeddings")

    @property
    def kv_numbers(self) -> int:
        queries = self._whole("num_attention_heads")
        width = self._whole("head_dim") or self._whole("hidden_size") // max(1, queries)
        kinds = self._config.get("layer_types") or self._config.get("layers_block_type")
        layers = self._whole("num_hidden_layers")
        if isinstance(kinds, list):
            layers = sum(not any(word in str(kind) for word in _NO_ATTENTION) for kind in kinds)
        return 2 * layers * (self._whole("num_key_value_heads") or queries) * width

    @cached_property
    def layers(self) -> Layers:
        count, used = (self._whole(*names) for names in (_EXPERTS, _EXPERTS_USED))
        window = self._whole("sliding_window") if self._config.get("use_sliding_window", True) else 0
        return Layers(
            recurrent=any(self._config.get(key) for key in _STATES),
            attends=bool(self.kv_numbers),
            experts=(used, count) if used and count else None,
            window=window or None,
        )

    @property
    def chat_templates(self) -> Mapping[str, str]:
        return self._chat_templates

    @property
    def ids(self) -> int:
        return self._whole("vocab_size") if self._stated else 0

    @cached_property
    def vocabulary(self) -> ListedTokens | None:
        """As the engines read it that take folders. Raises BadHead."""
        return None if self._stated is None else _tokens(self._stated, self._whole("vocab_size"))

    def _whole(self, *keys: str) -> int:
        """The whole number that the configuration has under the first of these keys; 0: it has none of them."""
        found = (self._config.get(key) for key in keys)
        return next((each for each in found if type(each) is int), 0)


def _tokens(stated: StatedTokens, size: int) -> ListedTokens:
    try:
        content = json.loads(stated.text)
        ids = ids_of(content)
        size = max(size, *ids.values())
        pieces, kinds = listed(content, ids, size)
    except (ModelLoadError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadHead(f"{stated.path.name} is no tokenizer that can be read: {error}") from None
    begin, end = (if_control(token, kinds) for token in (stated.begin, stated.end))
    within = {token for token in stated.ends if 0 <= token < size}
    kind = f"{content['model']['type']} of tokenizer.json"
    return ListedTokens(pieces, kinds, kind, begin, end, frozenset(within | named_ends(ids)), stated.adds_begin)


def _quantized(stated: Mapping[str, Any]) -> str:
    """The name of a quantisation, as `awq, 4 bits`."""
    bits = stated.get("bits") or stated.get("weight_bits")
    return ", ".join(filter(None, (str(stated.get("quant_method") or ""), f"{bits} bits" if bits else ""))) or "?"
