"""Configurations of the stand-in. These two refuse keyword arguments that they do not know, as the library's do."""

from typing import Any


class ContinuousBatchingConfig:
    """How many sequences have a line in the caches (library: config.py)."""

    def __init__(self, **kwargs: Any) -> None:
        self.max_num_seqs: int = kwargs.pop("max_num_seqs")
        assert not kwargs, f"unexpected key word arguments: {kwargs.keys()}"


class NeuronConfig:
    """Options of the library, of which only continuous batching is stood in for (library: config.py)."""

    def __init__(self, *, continuous_batching: ContinuousBatchingConfig | None = None, **kwargs: Any) -> None:
        self.continuous_batching = continuous_batching
        assert not kwargs, f"Unexpected NeuronConfig keyword arguments: {kwargs}"


class LlamaConfig:
    """What the library keeps of a model's config.json (library: llama/config.py)."""

    def __init__(self, config: dict[str, Any], amp: str, tp_degree: int) -> None:
        # TRAP: what is not named here is passed over, head_dim and biases among it; and a rope_theta that is not where
        # it looks becomes 10,000 without a word.
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
