"""A Llama folder for transformers-neuronx: what it must hold, and the compiled model made of it.

The library takes a folder's word for little: it drops keyword arguments it does not know, and entries of config.json
that it has no code for. Both would give a model that runs and says something else, so both are checked here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.base import ModelLoadError
from backends.hugging_face.folder import check_folder, read_json
from backends.neuron.shapes import LENGTHS, kv_heads_held

# of option `dtype`: what the library calls it, and its bytes
TYPES: Final = {"float32": ("f32", 4), "bfloat16": ("bf16", 2), "float16": ("f16", 2)}
_NEEDED: Final = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "max_position_embeddings")
_WEIGHTS: Final = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model is compiled for."""

    rows: int
    slots: int  # of each row's cache
    buckets: list[int]  # widths of the prompt passes
    dtype: str
    cores: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder whose config.json the library honours in full."""

    folder: Path
    config: dict[str, Any]

    @property
    def trained(self) -> int:
        """Tokens of context that the model was trained for."""
        return int(self.config["max_position_embeddings"])

    @property
    def vocabulary_size(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def rope_theta(self) -> float:
        """Base of the rotary positions, from either of the two places where transformers has kept it."""
        return float(_rope(self.config).get("rope_theta", self.config.get("rope_theta", 10_000.0)))

    def kv_bytes(self, shape: Shape) -> int:
        """Memory of the caches of all rows on all cores."""
        heads = int(self.config["num_attention_heads"])
        held = kv_heads_held(heads, int(self.config.get("num_key_value_heads") or heads), shape.cores)
        width = int(self.config["hidden_size"]) // heads
        layers = int(self.config["num_hidden_layers"])
        return 2 * layers * held * width * shape.slots * shape.rows * TYPES[shape.dtype][1]


def read_checkpoint(path: Path | None) -> Checkpoint:
    """Raises ModelLoadError with what is missing, or what the library would pass over."""
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
    passed_over = _passed_over(config)
    if passed_over:
        raise ModelLoadError(
            f"{folder / 'config.json'} says {passed_over}, which transformers-neuronx passes over: the model would run "
            "and say something else"
        )
    return Checkpoint(folder, config)


def compiled(neuron: Any, checkpoint: Checkpoint, shape: Shape) -> Any:
    """The model of the library `neuron`, its programs chosen but not built: that is `to_neuron`, which takes long.

    Raises ModelLoadError.
    """
    batching = neuron.ContinuousBatchingConfig(max_num_seqs=shape.rows)
    model = neuron.LlamaForSampling.from_pretrained(
        str(checkpoint.folder),
        n_positions=[shape.slots],  # a list is taken as it is; a number becomes a program for each power of two below
        batch_size=shape.rows,
        amp=TYPES[shape.dtype][0],
        tp_degree=shape.cores,
        context_length_estimate=shape.buckets,
        neuron_config=neuron.NeuronConfig(continuous_batching=batching),
    )
    # For batches of one: left out, it would mean batches of all rows, and a pass over one row would be refused.
    model.enable_speculative_decoder(list(LENGTHS), batch_sizes=[1])
    _check_taken(model, checkpoint, shape)
    return model


def _check_taken(model: Any, checkpoint: Checkpoint, shape: Shape) -> None:
    taken = {
        "n_positions": (model.token_buckets, [shape.slots]),
        "context_length_estimate": (model.context_buckets, shape.buckets),
        "batch_size": (model.batch_sizes, [shape.rows]),
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


def _passed_over(config: dict[str, Any]) -> str | None:
    """The first entry that the library has no code for; None if there is none."""
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
