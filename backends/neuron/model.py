"""Checks a Llama folder for transformers-neuronx, and makes the compiled model of it.

The library silently ignores keyword arguments that it does not know, and entries of config.json that it does not
implement. In both cases the model would run with wrong logits, so both are checked here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.base import ModelLoadError
from backends.hugging_face.folder import check_folder, read_json
from backends.neuron.shapes import LENGTHS, kv_heads_held

# Values of the option `dtype`: the library's name, and bytes per number.
TYPES: Final = {"float32": ("f32", 4), "bfloat16": ("bf16", 2), "float16": ("f16", 2)}
_NEEDED: Final = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "max_position_embeddings")
_WEIGHTS: Final = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and number type that a model is compiled for."""

    slots: int
    cells: int  # cells in each slot's KV cache, one per position
    buckets: list[int]  # widths of the prompt passes, in tokens
    dtype: str  # a key of TYPES
    cores: int  # NeuronCores that the model is split over


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder whose config.json the library implements in full."""

    folder: Path
    config: dict[str, Any]

    @property
    def trained(self) -> int:
        """The context length that the model was trained for, in tokens."""
        return int(self.config["max_position_embeddings"])

    @property
    def vocabulary_size(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def rope_theta(self) -> float:
        """The base of the rotary positions, from either of the two entries where versions of transformers store it."""
        return float(_rope(self.config).get("rope_theta", self.config.get("rope_theta", 10_000.0)))

    def kv_bytes(self, shape: Shape) -> int:
        """Bytes of the KV cache of all slots on all cores."""
        heads = int(self.config["num_attention_heads"])
        held = kv_heads_held(heads, int(self.config.get("num_key_value_heads") or heads), shape.cores)
        width = int(self.config["hidden_size"]) // heads
        layers = int(self.config["num_hidden_layers"])
        return 2 * layers * held * width * shape.cells * shape.slots * TYPES[shape.dtype][1]


def read_checkpoint(path: Path | None) -> Checkpoint:
    """Check and read a model folder. Raises ModelLoadError that names what is missing or what the library ignores."""
    folder = check_folder(path, "neuron_legacy", weights=_WEIGHTS)
    config = read_json(folder / "config.json")
    if config.get("model_type") != "llama":
        raise ModelLoadError(
            f"{folder} holds a model of type {config.get('model_type')!r}: neuron_legacy runs only 'llama', the one "
            "family whose speculative passes it knows"
        )
    missing = [key for key in _NEEDED if not config.get(key)]
    if missing:
        raise ModelLoadError(f"{folder / 'config.json'} does not say {', '.join(missing)}")
    ignored = _ignored_entry(config)
    if ignored:
        raise ModelLoadError(
            f"{folder / 'config.json'} says {ignored}, which transformers-neuronx ignores: the model would run with "
            "wrong logits. Choose another model or backend"
        )
    return Checkpoint(folder, config)


def compiled(neuron: Any, checkpoint: Checkpoint, shape: Shape) -> Any:
    """Make the model with the library `neuron`, but do not compile it: its `to_neuron` does, which takes long.

    Raises ModelLoadError if the library did not take a setting.
    """
    batching = neuron.ContinuousBatchingConfig(max_num_seqs=shape.slots)
    model = neuron.LlamaForSampling.from_pretrained(
        str(checkpoint.folder),
        n_positions=[shape.cells],  # as a number, it would mean a program for each power of two up to it
        batch_size=shape.slots,
        amp=TYPES[shape.dtype][0],
        tp_degree=shape.cores,
        context_length_estimate=shape.buckets,
        neuron_config=neuron.NeuronConfig(continuous_batching=batching),
    )
    # Without batch_sizes, the library compiles for batches of all slots and refuses a pass over one slot.
    model.enable_speculative_decoder(list(LENGTHS), batch_sizes=[1])
    _check_taken(model, checkpoint, shape)
    return model


def _check_taken(model: Any, checkpoint: Checkpoint, shape: Shape) -> None:
    """Raises ModelLoadError if a setting of the library's model is not the one that it was made with."""
    taken = {
        "n_positions": (model.token_buckets, [shape.cells]),
        "context_length_estimate": (model.context_buckets, shape.buckets),
        "batch_size": (model.batch_sizes, [shape.slots]),
        "amp": (model.config.amp, TYPES[shape.dtype][0]),
        "tp_degree": (model.config.tp_degree, shape.cores),
        "speculation_length": (list(model.decoder_lm_head_for_speculation), [(length, 1) for length in LENGTHS]),
    }
    for name, (has, asked) in taken.items():
        if has != asked:
            raise ModelLoadError(
                f"transformers-neuronx did not take {name}: it has {has}, asked for was {asked}. This backend is "
                "written for 0.13: see requirements-neuron-legacy.txt"
            )
    has = (float(model.config.rope_theta), _rope_type(model.config.rope_scaling or {}))
    asked = (checkpoint.rope_theta, _rope_type(_rope(checkpoint.config)))
    if has != asked:
        raise ModelLoadError(
            f"transformers-neuronx read the rotary positions as {has}, the model's are {asked}: it looks where "
            "transformers 4 kept them. Install transformers>=4.43,<5, and give config.json the entries rope_theta and "
            "rope_scaling in place of rope_parameters"
        )


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _rope_type(rope: dict[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def _ignored_entry(config: dict[str, Any]) -> str | None:
    """The first entry of config.json that the library does not implement, in words; None if there is none."""
    width = config["hidden_size"] // config["num_attention_heads"]
    if (config.get("head_dim") or width) != width:
        return f"head_dim {config['head_dim']} with heads of hidden_size / num_attention_heads = {width}"
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            return f"{key} true"
    if config.get("hidden_act", "silu") != "silu":
        return f"hidden_act {config['hidden_act']!r}"
    kind = _rope_type(_rope(config))
    return f"rope_type {kind!r}" if kind not in ("default", "llama3") else None
