"""Configurations of the stand-in. The first two refuse unknown keyword arguments, as the library's do."""

from typing import Any


class ContinuousBatchingConfig:
    """The number of sequences in the caches (library: config.py)."""

    def __init__(self, **kwargs: Any) -> None:
        self.max_num_seqs: int = kwargs.pop("max_num_seqs")
        assert not kwargs, f"unexpected key word arguments: {kwargs.keys()}"


class NeuronConfig:
    """Options of the library, of which the stand-in has only those that the backend uses (library: config.py)."""

    def __init__(
        self,
        *,
        continuous_batching: ContinuousBatchingConfig | None = None,
        compilation_worker_count: int | None = None,
        cast_logits_dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        self.continuous_batching = continuous_batching
        self.compilation_worker_count = compilation_worker_count
        self.cast_logits_dtype = cast_logits_dtype
        assert not kwargs, f"Unexpected NeuronConfig keyword arguments: {kwargs}"


class LlamaConfig:
    """The entries of a model's config.json that the library reads (library: llama/config.py)."""

    def __init__(self, config: dict[str, Any], amp: str, tp_degree: int) -> None:
        # TRAP: entries not named here are ignored, such as head_dim and biases; a rope_theta stored elsewhere silently
        # becomes 10,000.
        self.hidden_size: int = config["hidden_size"]
        self.num_attention_heads: int = config["num_attention_heads"]
        self.attention_head_size = self.hidden_size // self.num_attention_heads
        self.num_key_value_heads: int = config.get("num_key_value_heads", self.num_attention_heads)
        self.num_hidden_layers: int = config["num_hidden_layers"]
        self.vocab_size: int = config["vocab_size"]
        self.rms_norm_eps: float = config["rms_norm_eps"]
        self.rope_theta: float = config.get("rope_theta", 10000)
        self.rope_scaling: dict[str, Any] | None = config.get("rope_scaling")
        self.amp, self.tp_degree = amp, tp_degree
