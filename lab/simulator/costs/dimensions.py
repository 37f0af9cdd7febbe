"""The sizes of a model and of a device, as far as the time of a forward pass depends on them.

A user's own model or device is made of these as the catalogue's are; pydantic raises ValidationError, which names the
field, for a value that none can have.
"""

from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lab.simulator.costs.cost import BadCost
from specpair.command_line.given_values import advice

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


class _Sizes(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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
        """Of one layer: for queries, keys, values and the output."""
        return self.d_model * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def ffn_weights(self) -> int:
        """Of one feed-forward network, or of one expert."""
        return (3 if self.gated else 2) * self.d_model * self.ffn

    @property
    def router_weights(self) -> int:
        """Of one layer."""
        return self.d_model * self.experts

    @property
    def head_weights(self) -> int:
        return self.d_model * self.vocabulary

    @property
    def weights(self) -> int:
        """Of the whole model, without norms and biases, which are less than a thousandth."""
        layer = self.attention_weights + self.router_weights + max(1, self.experts) * self.ffn_weights
        return self.layers * layer + self.head_weights * (1 if self.tied_embeddings else 2)

    @property
    def active_weights(self) -> int:
        """Those that a token is multiplied with, the head's included."""
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
