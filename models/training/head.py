"""Trains the head of the default target: one more layer that drafts from the target's own hidden states (MTP).

    python -m models.training.head --out models/stdlib-head-q8_0.gguf

The head starts as a copy of the target's last layer. It reads a token's embedding and the target's hidden state of the
token before, and learns the target's distribution of the next token. Further draft tokens follow from its own hidden
states, so a training step is a chain of three passes. The target stays as it is.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models import DEFAULT_TARGET
from models.errors import ExportError
from models.export import quantised
from models.gguf_file import Gguf, Tensor, field_of, read_gguf, write_gguf
from models.heads import experts
from models.huggingface import huggingface_weights
from models.training.corpus import Corpus, CorpusError, add_source, encode_all, read_corpus, tokenizer_of, windows
from models.training.train import Say, progress
from specpair.extras import extras_named

with extras_named("torch"):
    import torch
    from gguf import GGMLQuantizationType
    from torch.nn import functional

    from models.training.model import EMBEDDINGS, Shape, Weights, hidden_states, layer, norm, optimise

CHAIN: Final = 3  # passes: draft tokens that the head learns to make in a row
_HIDDEN_WEIGHT: Final = 2.0  # of the distance to the target's hidden state, in which the next pass starts
_NAMES: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "shared_head.norm": "nextn.shared_head_norm",
}


@dataclass(frozen=True)
class HeadRecipe:
    """How to train: ``steps`` steps, each on ``batch`` windows of ``length`` tokens. ``sample``: held-out windows."""

    steps: int = 800
    batch: int = 4
    length: int = 256
    peak: float = 0.5  # share of the learning rates of a new model: most weights are trained already
    sample: int = 16
    seed: int = 0


def initial_head(target: Weights, shape: Shape) -> Weights:
    """A copy of the target's last layer that reads the mean of both inputs, roughly; leaves that take gradients.

    The names are those of GLM-4.5 in Hugging Face layout, with the index after the target's last layer.
    """
    last, own = f"model.layers.{shape.layers - 1}.", f"model.layers.{shape.layers}."
    head = {name.replace(last, own): weight.clone() for name, weight in target.items() if name.startswith(last)}
    half = 0.5**0.5 * torch.eye(shape.hidden)
    head[f"{own}eh_proj.weight"] = torch.cat([half, half], dim=1)
    head[f"{own}enorm.weight"] = torch.ones(shape.hidden)
    head[f"{own}hnorm.weight"] = torch.ones(shape.hidden)
    head[f"{own}shared_head.norm.weight"] = target["model.norm.weight"].clone()
    return {name: weight.requires_grad_() for name, weight in head.items()}


def head_states(
    head: Mapping[str, torch.Tensor], shape: Shape, embedded: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    """The head's hidden states for embeddings of tokens and hidden states of the tokens before them.

    All are ``(batch, length, hidden)``. The LM head reads the result, and so does the next pass.
    """
    own = f"model.layers.{shape.layers}."
    both = [norm(embedded, head[f"{own}enorm.weight"], shape), norm(before, head[f"{own}hnorm.weight"], shape)]
    x = functional.linear(torch.cat(both, dim=-1), head[f"{own}eh_proj.weight"])
    return norm(layer(head, shape.layers, shape, x), head[f"{own}shared_head.norm.weight"], shape)


def chain_loss(
    head: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor], shape: Shape, ids: torch.Tensor
) -> torch.Tensor:
    """The mean loss of a chain of CHAIN passes over ids ``(batch, length)``, in nats per token.

    A pass's loss is the cross entropy with the target's distribution, and the distance to the target's hidden states.
    """
    with torch.no_grad():
        embedded, wanted = functional.embedding(ids, target[EMBEDDINGS]), hidden_states(target, shape, ids)
        shares = functional.linear(wanted, target[EMBEDDINGS]).softmax(-1)
    states, total = wanted, torch.zeros(())
    for _ in range(CHAIN):
        states = head_states(head, shape, embedded, _shifted(states.detach()))
        predicted = functional.linear(states, target[EMBEDDINGS]).log_softmax(-1)
        total = total - (shares * predicted).sum(-1).mean()
        total = total + _HIDDEN_WEIGHT * functional.smooth_l1_loss(states, wanted)
    return total / CHAIN


def agreement(
    head: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor], shape: Shape, ids: torch.Tensor
) -> list[float]:
    """How often the pick of each pass of the chain equals the target's, for ids ``(batch, length)``."""
    with torch.no_grad():
        embedded, states = functional.embedding(ids, target[EMBEDDINGS]), hidden_states(target, shape, ids)
        picks = functional.linear(states, target[EMBEDDINGS]).argmax(-1)
        equal = []
        for _ in range(CHAIN):
            states = head_states(head, shape, embedded, _shifted(states))
            equal.append((functional.linear(states, target[EMBEDDINGS]).argmax(-1) == picks).float().mean().item())
    return equal


def _shifted(states: torch.Tensor) -> torch.Tensor:
    """Each position's state of the position before it; zeros at first."""
    return functional.pad(states[:, :-1], (0, 0, 1, 0))


def head_of(weights: Mapping[str, torch.Tensor], layers: int) -> Gguf:
    """A trained head as ``models.heads.with_head`` takes it, for a target with ``layers`` layers; matrices in Q8_0."""
    prefix = f"model.layers.{layers}."
    parts = {name.removeprefix(prefix).removesuffix(".weight"): weight.detach() for name, weight in weights.items()}
    data = {f"{_NAMES[part]}.weight": weight.numpy() for part, weight in parts.items()}
    data |= experts({name: data.pop(name) for name in [*data] if name.startswith("ffn_")})
    tensors = [Tensor(f"blk.{layers}.{name}", values, GGMLQuantizationType.F32) for name, values in data.items()]
    about = {"type": "model", "name": "stdlib head", "license": "PSF-2.0"}
    fields = {f"general.{key}": field_of(value) for key, value in about.items()}
    return quantised(Gguf("glm4moe", fields, tensors), "q8_0")


def shape_of(model: Gguf) -> Shape:
    """The sizes of a Llama model with tied embeddings."""
    return Shape(
        hidden=model.get("embedding_length"),
        layers=model.layers,
        heads=model.get("attention.head_count"),
        kv_heads=model.get("attention.head_count_kv"),
        ffn=model.get("feed_forward_length"),
        head_dim=model.get("attention.key_length"),
        vocabulary=len(model.fields["tokenizer.ggml.tokens"].value),
        rope_base=model.get("rope.freq_base"),
        epsilon=model.get("attention.layer_norm_rms_epsilon"),
    )


def train_head(model: Gguf, corpus: Corpus, recipe: HeadRecipe, say: Say) -> Weights:
    """Train a head for a Llama model with the vocabulary of ``models.training``. ``say`` gets lines about the progress.

    Raises CorpusError for too short a text, ExportError for a model that lacks weights.
    """
    shape = shape_of(model)
    target = {name: torch.tensor(data) for name, data in huggingface_weights(model, shape.config).items()}
    tokenizer = tokenizer_of(*(model.fields[f"tokenizer.ggml.{key}"].value for key in ("tokens", "merges")))
    training, held_out = encode_all(tokenizer, corpus.training), encode_all(tokenizer, corpus.held_out)
    sample = torch.from_numpy(next(windows(held_out, recipe.length, recipe.sample, seed=0)))
    head = initial_head(target, shape)
    say(f"head: {sum(weight.numel() for weight in head.values()):,} parameters, {recipe.steps} steps")

    def loss(inputs: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
        return chain_loss(head, target, shape, inputs)

    batches = windows(training, recipe.length, recipe.batch, recipe.seed)
    optimise(head, batches, recipe.steps, loss, progress("head", recipe.steps, say), recipe.peak)
    shares = ", ".join(f"{share:.3f}" for share in agreement(head, target, shape, sample))
    say(f"head: the picks of {CHAIN} passes in a row agree with the target's in {shares} of the held-out tokens")
    return head


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m models.training.head", description="Train a head that drafts for the default target."
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the GGUF file to write: the head's layer alone")
    add_source(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 after one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        corpus = read_corpus(options.source)
        target = read_gguf(DEFAULT_TARGET)
        head = train_head(target, corpus, HeadRecipe(), lambda line: print(line, flush=True))
        write_gguf(head_of(head, target.layers), options.out)
    except (CorpusError, ExportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
