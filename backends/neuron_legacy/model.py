"""Checks a Llama folder for transformers-neuronx, and makes the compiled model of it.

The library silently ignores keyword arguments that it does not know, and entries of config.json that it does not
implement. In both cases the model would run with wrong logits, so both are checked here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.hugging_face import check_folder
from backends.neuron_legacy.memory import LlamaSizes
from backends.neuron_legacy.passes import Programs
from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import read_json

# Values of the option `dtype`: the library's name, and bytes per number.
TYPES: Final = {"float32": ("f32", 4), "bfloat16": ("bf16", 2), "float16": ("f16", 2)}
_NEEDED: Final = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("vocab_size", "max_position_embeddings"),
)
_WEIGHTS: Final = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)


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
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def vocabulary_size(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def rope_theta(self) -> float:
        """The base of the rotary positions, from either of the two entries where versions of transformers store it."""
        return float(_rope(self.config).get("rope_theta", self.config.get("rope_theta", 10_000.0)))

    def sizes(self, programs: Programs, dtype: str) -> LlamaSizes:
        """The model's memory with the number type `dtype`, a key of TYPES."""
        return LlamaSizes(self.config, TYPES[dtype][1], programs.slots, programs.cells)


def read_checkpoint(path: Path | None) -> Checkpoint:
    """Check and read a model folder. Raises ModelLoadError that names what is missing or what the library ignores."""
    folder = check_folder(path, "neuron_legacy", weights=_WEIGHTS)
    config = read_json(folder / "config.json")
    if config.get("model_type") != "llama":
        raise ModelLoadError(
            f"{folder} holds a model of type {config.get('model_type')!r}: neuron_legacy runs only 'llama', the one "
            "family whose speculative passes it knows"
        )
    missing = [key for key in _NEEDED if not isinstance(config.get(key), int) or config[key] < 1]
    if missing:
        raise ModelLoadError(f"{folder / 'config.json'} does not say {', '.join(missing)} as a number")
    for key in ("rope_parameters", "rope_scaling"):
        if config.get(key) and not isinstance(config[key], dict):
            raise ModelLoadError(f"{folder / 'config.json'}: {key} is {config[key]!r}, expected is an object")
    ignored = _ignored_entry(config)
    if ignored:
        raise ModelLoadError(
            f"{folder / 'config.json'} says {ignored}, which transformers-neuronx ignores: the model would run with "
            "wrong logits. Choose another model or backend"
        )
    return Checkpoint(folder, config)


def made(neuron: Any, checkpoint: Checkpoint, programs: Programs, dtype: str, degree: int, workers: int) -> Any:
    """Make the model with the library `neuron`, but do not compile it: its `to_neuron` does, which takes long.

    `dtype`: a key of TYPES.
    `degree`: the cores that the model is split over.
    `workers`: programs to compile at a time.

    Raises ModelLoadError if the library did not take a setting.
    """
    batching = neuron.ContinuousBatchingConfig(max_num_seqs=programs.slots)
    model = neuron.LlamaForSampling.from_pretrained(
        str(checkpoint.folder),
        n_positions=list(programs.spans),  # as a number, it would mean a program for each power of two up to it
        batch_size=programs.slots,
        amp=TYPES[dtype][0],
        tp_degree=degree,
        context_length_estimate=list(programs.prompts),
        # Logits in the number type of the model, as they come from the cores: few of them are converted in the end.
        neuron_config=neuron.NeuronConfig(
            continuous_batching=batching, compilation_worker_count=workers, cast_logits_dtype=dtype
        ),
    )
    # A pass over all slots reads their caches where they are. One over a single slot gathers its cache first.
    for width in programs.verify:
        model.enable_speculative_decoder([width], batch_sizes=programs.batches)
    for width in programs.continuations:
        model.decoder_lm_head_for_window_context[width] = _continuation(model, width)
    # The program for single tokens is never run: see `backends.neuron_legacy.passes`. So it is not even compiled.
    model.nbs_objs = [each for each in model.nbs_objs if each is not model.decoder_lm_head]
    _check_taken(model, checkpoint, programs, dtype, degree)
    return model


def cut_no_inputs(model: Any) -> None:
    """Make the library's verify passes take their inputs as they are. To be called on a compiled model.

    It cuts inputs to the width of the program, which these have already. But it also cuts those that have an item for
    each slot, so that a pass of fewer tokens than slots would fail.
    """
    for program in model.decoder_lm_head_for_speculation.values():
        tokens, *others = program.inputs_sdim
        program.inputs_sdim = (tokens, *(None for _ in others))


def _continuation(model: Any, width: int) -> Any:
    """The program of a continuation of `width` tokens: a speculative one that returns the last token's logits only.

    The library's own windows (`enable_window_context_decoder`) run for all slots at once.
    """
    program = model.decoder_param_set.init_speculative_decoder(
        unroll=model.unroll, buckets=model.token_buckets, model_obj=model, n_active_tokens=width, batch_size=1
    )
    program.return_all_outputs = False
    return program


def _check_taken(model: Any, checkpoint: Checkpoint, programs: Programs, dtype: str, degree: int) -> None:
    """Raises ModelLoadError if the library's model has changed a setting."""
    taken = {
        "n_positions": (model.token_buckets, list(programs.spans)),
        "context_length_estimate": (model.context_buckets, list(programs.prompts)),
        "batch_size": (model.batch_sizes, [programs.slots]),
        "amp": (model.config.amp, TYPES[dtype][0]),
        "tp_degree": (model.config.tp_degree, degree),
        "speculation_length": (
            list(model.decoder_lm_head_for_speculation),
            [(width, batch) for width in programs.verify for batch in programs.batches],
        ),
    }
    for name, (has, asked) in taken.items():
        if has != asked:
            raise ModelLoadError(
                f"transformers-neuronx did not take {name}: it has {has}, asked for was {asked}. This backend is "
                "written for 0.13: see requirements/neuron-legacy.txt"
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
    width, left = divmod(config["hidden_size"], config["num_attention_heads"])
    if left:
        return f"hidden_size {config['hidden_size']} with {config['num_attention_heads']} heads"
    quantized = config.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        return f"quantization_config of {method!r}"
    if (config.get("head_dim") or width) != width:
        return f"head_dim {config['head_dim']} with heads of hidden_size / num_attention_heads = {width}"
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            return f"{key} true"
    if config.get("hidden_act", "silu") != "silu":
        return f"hidden_act {config['hidden_act']!r}"
    kind = _rope_type(_rope(config))
    return f"rope_type {kind!r}" if kind not in ("default", "llama3") else None
