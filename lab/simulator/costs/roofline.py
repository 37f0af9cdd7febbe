"""The time of a forward pass from the sizes of a model and of a device.

Roofline (Williams, Waterman, Patterson, 2009, doi:10.1145/1498765.1498785): a kernel takes as long as its bytes at the
memory's bandwidth or its FLOPs at the peak, whichever is longer, each at the share of the peak that the device reaches.
The kernels of a pass run one after the other:

    seconds = linear + attention + head + all-reduces + layers * layer_overhead,
    each of the first three max(bytes / (bandwidth * efficiency), FLOPs / (peak * efficiency))

Assumptions, with n tokens in the pass:
- linear: the weights of all layers are read once a pass and multiplied with n tokens: 2 FLOPs a weight and token. Of
  E experts, n tokens that each choose k read E (1 - (1 - k/E)^n) on average, as if each chose at random and for itself.
- attention: each sequence's KV cache is read once a pass and layer, for all its new tokens (as flash-decoding and
  grouped-query attention do), and its new tokens are written. A new token costs 4 * heads * head_dim FLOPs for each
  token that it attends to: the cache, and half of the new ones.
- head: read once a pass; logits of at most `scored` new tokens a sequence, so that a prompt pays for few of them.
- Activations stay on the chip. Embeddings of n tokens are read.
- Tensor parallelism over p devices (Megatron-LM, arXiv 1909.08053): weights, cache and FLOPs are divided by p, the
  cache by at most kv_heads; each layer has two all-reduces of n * d_model values of 2 bytes, each a ring, which sends
  2 (p - 1) / p of them at the link's rate and takes the link's latency at least. They do not overlap with kernels.
- The passes of one engine do not overlap, and what a processor does between them (scheduling, sampling) is not in here.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lab.simulator.costs.cost import BadCost, SequencePass
from specpair.command_line.layers import KnownKeys
from specpair.command_line.setting_values import advice

Share = Annotated[float, Field(gt=0, le=1)]

# Bytes of a weight or of a value in the KV cache. The block formats of llama.cpp hold 32 values and a scale of 2 bytes
# (ggml-common.h); Q4_K_M mixes formats: the 39.59 GiB of the 70.55e9 weights of Llama 3 70B.
BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_k_m": 39.59 * 2**30 / 70.55e9,
}
# In which numbers a device multiplies weights of a type, the best first. What is stored smaller than that is unpacked.
_MULTIPLIED_IN = {"fp8": ("fp8", "bf16", "fp32"), "fp32": ("fp32",)}


def bytes_of(number_type: str) -> float:
    """Bytes of a number of this type. Raises BadCost for an unknown one."""
    if number_type not in BYTES:
        raise BadCost(f"unknown number type {number_type!r}{advice(number_type, BYTES)}")
    return BYTES[number_type]


class _Sizes(KnownKeys):
    model_config = ConfigDict(frozen=True)


class Model(_Sizes):
    """A transformer of equal layers, each with grouped-query attention and a feed-forward network."""

    d_model: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    ffn: PositiveInt  # the inner width of the feed-forward network, or of one expert
    vocabulary: PositiveInt
    tied_embeddings: bool = False  # the head's weights are those of the embeddings
    experts: NonNegativeInt = 0  # of a layer, between which a router chooses; 0: the model is dense
    active_experts: NonNegativeInt = 0  # that a token is sent to
    gated: bool = True  # three matrices in a feed-forward network, as with SwiGLU, and not two

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads is {self.heads}, and must be a multiple of kv_heads, which is {self.kv_heads}")
        if not self.active_experts <= self.experts or (self.experts > 0) != (self.active_experts > 0):
            raise ValueError(
                f"active_experts is {self.active_experts}, and must be 1 to experts, which is {self.experts}, or both 0"
            )
        return self

    @property
    def attention_weights(self) -> int:
        """Attention weights of one layer: for queries, keys, values and the output."""
        return self.d_model * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def ffn_weights(self) -> int:
        """Weights of one feed-forward network, or of one expert."""
        return (3 if self.gated else 2) * self.d_model * self.ffn

    @property
    def router_weights(self) -> int:
        """Router weights of one layer."""
        return self.d_model * self.experts

    @property
    def head_weights(self) -> int:
        return self.d_model * self.vocabulary

    @property
    def weights(self) -> int:
        """Weights of the whole model, without norms and biases, which are less than a thousandth."""
        layer = self.attention_weights + self.router_weights + max(1, self.experts) * self.ffn_weights
        return self.layers * layer + self.head_weights * (1 if self.tied_embeddings else 2)

    @property
    def active_weights(self) -> int:
        """Weights that a token is multiplied with, including the head's."""
        layer = self.attention_weights + self.router_weights + max(1, self.active_experts) * self.ffn_weights
        return self.layers * layer + self.head_weights

    @property
    def cached_values(self) -> int:
        """Values in the KV cache for one token of context, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


class Device(_Sizes):
    """One accelerator or processor. Rates are peaks; `…_efficiency` is the share that passes reach."""

    memory: PositiveFloat  # bytes
    bandwidth: PositiveFloat  # of the memory, bytes a second
    flops: dict[str, PositiveFloat] = Field(min_length=1)  # by "fp8", "bf16", "fp32": dense, accumulated in 32 bits
    bandwidth_efficiency: Share = 0.8
    flops_efficiency: Share = 0.5
    layer_overhead: NonNegativeFloat = 0.0  # seconds of a layer outside of its matrix products: launches, norms
    link: PositiveFloat | None = None  # bytes a second that one device sends to the others of its node
    link_latency: NonNegativeFloat = 0.0  # seconds of the shortest all-reduce

    def peak(self, number_type: str) -> float:
        """FLOPs a second, dense, for weights of this type. Raises BadCost if the device has no such unit."""
        bytes_of(number_type)
        wanted = _MULTIPLIED_IN.get(number_type, ("bf16", "fp32"))
        for each in wanted:
            if each in self.flops:
                return self.flops[each]
        raise BadCost(
            f"weights in {number_type} are multiplied in {' or '.join(wanted)}, and flops has {', '.join(self.flops)}"
        )


SCORED = 17  # logits a sequence: of a pending token and 16 draft tokens
_ACTIVATION = 2  # bytes of a value that devices exchange


class Roofline:
    """The cost of passes of `model` on `degree` devices of one node that share its tensors."""

    def __init__(
        self,
        model: Model,
        device: Device,
        *,
        weights: str = "bf16",
        cache: str = "bf16",
        degree: int = 1,
        scored: int = SCORED,
    ) -> None:
        """`weights`, `cache`: number types. Raises BadCost for sizes that do not go together."""
        if degree < 1 or model.heads % degree:
            raise BadCost(f"a tensor parallel degree of {degree} does not divide the {model.heads} heads")
        if degree > 1 and device.link is None:
            raise BadCost(f"a tensor parallel degree of {degree} needs the device's link, in bytes a second")
        if scored < 1:
            raise BadCost(f"scored is {scored}, and must be 1 or more")
        self._model, self._degree, self._scored = model, degree, scored
        self._weight, self._cached = bytes_of(weights), bytes_of(cache) * model.cached_values
        self._bandwidth = device.bandwidth * device.bandwidth_efficiency
        self._peak = device.peak(weights) * device.flops_efficiency
        self._overhead = model.layers * device.layer_overhead
        self._link, self._latency = device.link or float("inf"), device.link_latency
        held = model.weights * self._weight / degree
        if held > device.memory:
            raise BadCost(
                f"weights of {held / 1e9:.1f} GB a device do not fit in {device.memory / 1e9:.1f} GB: "
                "give smaller numbers or a greater tensor parallel degree"
            )
        self._room = device.memory - held

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        tokens = sum(new for new, _ in sequences)
        if not tokens:
            return 0.0
        scored = sum(min(new, self._scored) for new, _ in sequences)
        return (
            self._linear(tokens)
            + self._attention(sequences)
            + self._head(scored)
            + self._all_reduces(tokens)
            + self._overhead
        )

    def cache_tokens(self) -> int:
        """Tokens of context that the memory holds beside the weights, over all sequences."""
        return int(self._room / (self._cached / min(self._degree, self._model.kv_heads)))

    def _linear(self, tokens: int) -> float:
        model = self._model
        read: float = model.layers * (model.attention_weights + model.router_weights)
        read += model.layers * self._feed_forwards(tokens) * model.ffn_weights
        used = model.active_weights - model.head_weights
        embedded = tokens * model.d_model
        return self._kernel((read + embedded) * self._weight, 2.0 * tokens * used, self._degree)

    def _feed_forwards(self, tokens: int) -> float:
        """The average number of a layer's feed-forward networks that are read for these tokens."""
        model = self._model
        if not model.experts:
            return 1.0
        return model.experts * (1.0 - _power(1.0 - model.active_experts / model.experts, tokens))

    def _attention(self, sequences: Sequence[SequencePass]) -> float:
        model = self._model
        moved = sum(cached + 2 * new for new, cached in sequences) * self._cached
        attended = sum(new * (cached + (new + 1) / 2) for new, cached in sequences)
        flops = 4.0 * model.layers * model.heads * model.head_dim * attended
        split = min(self._degree, model.kv_heads)
        return max(moved / split / self._bandwidth, flops / self._degree / self._peak)

    def _head(self, scored: int) -> float:
        weights = self._model.head_weights
        return self._kernel(weights * self._weight, 2.0 * scored * weights, self._degree)

    def _kernel(self, moved: float, flops: float, split: int) -> float:
        return max(moved / self._bandwidth, flops / self._peak) / split

    def _all_reduces(self, tokens: int) -> float:
        if self._degree == 1:
            return 0.0
        sent = 2 * (self._degree - 1) / self._degree * tokens * self._model.d_model * _ACTIVATION
        return 2 * self._model.layers * (self._latency + sent / self._link)


def _power(base: float, exponent: int) -> float:
    """A power by products, whose last bits are the same on every machine."""
    power = 1.0
    while exponent:
        if exponent % 2:
            power *= base
        base, exponent = base * base, exponent // 2
    return power
