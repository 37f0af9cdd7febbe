"""The library's path from a caller's tokens to the device, for Llama with continuous batching."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.stand_ins.transformers_neuronx.config import LlamaConfig, NeuronConfig
from tests.stand_ins.transformers_neuronx.device import Device


def find(buckets: Sequence[int], size: int) -> int:
    """The smallest bucket that holds `size`, else the last one (library: bucket.find).

    TRAP: it bisects, so for buckets not in ascending order it finds a wrong one.
    """
    return buckets[bisect_left(buckets, size, 0, len(buckets) - 1)]


class LlamaForSampling:
    """See the package. Has only what continuous batching without further options uses (library: llama/model.py)."""

    @classmethod
    def from_pretrained(cls, path: str, **kwargs: Any) -> "LlamaForSampling":
        cells, prompts = kwargs.get("n_positions", 2048), kwargs.get("context_length_estimate")
        widest = max(prompts) if isinstance(prompts, list) else prompts
        most = max(cells) if isinstance(cells, list) else cells
        refusal = f"Max context_length_estimate {widest} cannot be more than max n_positions {most}."
        assert widest is None or most >= widest, refusal
        batching = kwargs["neuron_config"].continuous_batching
        # TRAP (PretrainedModel.from_pretrained): batch_size must be given, too, although it repeats max_num_seqs.
        slots, expected = batching.max_num_seqs, kwargs.get("batch_size")
        assert slots == expected, f"invalid batch_size_for_shared_caches ({slots}), {expected} is expected"
        folder = Path(path)
        if not (folder / "model.safetensors").is_file():
            raise FileNotFoundError(f"Can not find model.safetensors or pytorch_model.bin in {path}")
        return cls(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")), **kwargs)

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        *,
        n_positions: int | list[int] = 2048,
        batch_size: int = 1,
        amp: str = "f32",
        tp_degree: int = 2,
        context_length_estimate: int | list[int] | None = None,
        neuron_config: NeuronConfig | None = None,
        **_kwargs: Any,  # TRAP: a misspelt name is ignored
    ) -> None:
        assert neuron_config is not None and neuron_config.continuous_batching is not None, "not in the stand-in"
        self.config = LlamaConfig(config, amp, tp_degree)
        self._folder, self._slots = folder, neuron_config.continuous_batching.max_num_seqs
        self.batch_sizes = [batch_size]
        self.token_buckets = sorted(n_positions) if isinstance(n_positions, list) else _doubling(n_positions)
        if context_length_estimate is None:
            self.context_buckets = [bucket // 2 for bucket in self.token_buckets]
        else:
            given = context_length_estimate
            self.context_buckets = sorted(given) if isinstance(given, list) else [given]
        self.unroll: int = self.config.num_hidden_layers
        self.decoder_lm_head_for_speculation: dict[tuple[int, int], Program] = {}
        self.decoder_lm_head_for_window_context: dict[int, Program] = {}
        self.decoder_param_set = self  # it makes further programs
        self.decoder_lm_head = object()  # the program for single tokens
        self.nbs_objs: list[Any] = [
            self.decoder_lm_head
        ]  # all programs that are to be compiled, less the prompts' here
        self._logits_dtype = getattr(torch, neuron_config.cast_logits_dtype)
        self.chkpt_model = SimpleNamespace(model=SimpleNamespace(embed_tokens=self._embedded))
        self._programs_from: Path | None = None
        self.device: Device | None = None

    def enable_speculative_decoder(
        self, speculation_length: int | list[int], batch_sizes: int | list[int] | None = None
    ) -> None:
        """Must be called before `to_neuron` (library: NeuronModelBase.enable_speculative_decoder)."""
        lengths = [speculation_length] if isinstance(speculation_length, int) else speculation_length
        # TRAP: without batch_sizes, programs are made only for batches of all slots.
        batches = self.batch_sizes if batch_sizes is None else batch_sizes
        for length in lengths:
            for batch in [batches] if isinstance(batches, int) else batches:
                self.decoder_lm_head_for_speculation[length, batch] = self.decoder_param_set.init_speculative_decoder(
                    self.unroll, self.token_buckets, self, length, batch
                )

    def init_speculative_decoder(
        self, unroll: int, buckets: list[int], model_obj: "LlamaForSampling", n_active_tokens: int, batch_size: int
    ) -> "Program":
        """A further program (library: DecoderLmHeadForSamplingNoEmbedding)."""
        program = Program(model_obj, n_active_tokens, batch_size)
        model_obj.nbs_objs.append(program)
        return program

    def load(self, directory: str) -> None:
        """Take the programs from a folder in `to_neuron`, instead of compiling them."""
        self._programs_from = Path(directory)

    def save(self, directory: str) -> None:
        """Write a file for each program (library: one for each distinct program, named by its hash)."""
        for name in self._names():
            (Path(directory) / name).write_bytes(b"program")

    def to_neuron(self) -> None:
        """Build every program (library: base.py, and fused_kv_update_cache for the refusals)."""
        further = [*self.decoder_lm_head_for_speculation.values(), *self.decoder_lm_head_for_window_context.values()]
        for length in (program.width for program in further):
            if not 1 < length <= self.token_buckets[0]:
                raise NotImplementedError(f"Updating 2D cache_ids is not implemented for n_active_tokens={length}")
        if self._programs_from is not None and not all(
            (self._programs_from / name).is_file() for name in self._names()
        ):
            raise FileNotFoundError("Could not find a matching NEFF for your HLO in this directory.")
        self.device = Device(self.config, self._folder, self.token_buckets[-1], self._slots)

    def forward(self, input_ids: Tensor, cache_ids: Tensor, start_ids: Tensor, **_kwargs: Any) -> Tensor:
        """Run a prompt, or one token of every slot. Returns the logits (sequences, vocab) of the last token."""
        ids, cells, slots, last = self._prepared(input_ids, cache_ids, start_ids)
        device, width, x = self._built(), ids.shape[1], self._embedded(ids)
        if width > 1:
            bucket = find(self.context_buckets, width)
            if width < bucket:  # so `forward` cannot continue a text (library: NeuronModelBase.context)
                raise ValueError(f"context_length ({width}) shouldn't be smaller than estimate ({bucket})")
            logits = device.run(bucket, 1, x, cells, slots, prompt=True)[:, last]
            return logits[: self.config.vocab_size, -1, :].T.to(self._logits_dtype)
        assert self.decoder_lm_head in self.nbs_objs, "a program that was not compiled"
        every = device.run(1, self._slots, x, cells, slots, prompt=False)[:, -1, :].T.to(self._logits_dtype)
        return every[start_ids.flatten().long()]

    def speculative_forward(
        self, input_ids: Tensor, cache_ids: Tensor, start_ids: Tensor, speculation_length: Any = None
    ) -> Tensor:
        """Run several tokens of each sequence. Returns logits (length, vocab, sequences), padding included."""
        ids, cells, slots, _ = self._prepared(input_ids, cache_ids, start_ids)
        batch, given = input_ids.shape
        if speculation_length is None:  # TRAP: the default uses the program for single tokens of all slots, and fails
            if batch != self._slots:
                raise KeyError((self.token_buckets[-1], batch))
            raise TypeError("bad operand type for unary -: 'NoneType'")
        # TRAP: the keys of the programs are pairs, so a number never matches, and the width of the ids decides.
        if speculation_length not in self.decoder_lm_head_for_speculation:
            speculation_length = find([length for length, _ in self.decoder_lm_head_for_speculation], given)
        program = self.decoder_lm_head_for_speculation[speculation_length, batch]
        # TRAP: of the sequences' last tokens, the library keeps as many as the width is (library: decoder.forward).
        cut = program.inputs_sdim[3] is not None and batch > speculation_length
        assert not cut, "Copying tensor from host to device: different shapes"
        # The program cuts off tokens beyond its width, and refuses fewer tokens (library: decoder.forward).
        x, cells = self._embedded(ids[:, :speculation_length]), cells[:, :speculation_length]
        # TRAP: a pass as wide as the cache is a prompt pass (library: hlo.decoder_attention_mask_lhs_aligned).
        prompt = speculation_length == self.token_buckets[0]
        logits = self._built().run(speculation_length, batch, x, cells, slots, prompt).to(self._logits_dtype)
        return logits[: self.config.vocab_size, -speculation_length:, :].transpose(0, 1)

    def _embedded(self, ids: Tensor) -> Tensor:
        return self._built().embedded(ids)

    def _names(self) -> list[str]:
        """The files of the programs."""
        shapes = [*self.decoder_lm_head_for_speculation, *self.decoder_lm_head_for_window_context]
        return [f"{shape}-{self.token_buckets}-{self._slots}.neff" for shape in [*shapes, *self.context_buckets]]

    def _built(self) -> Device:
        assert self.device is not None, "to_neuron has not been called"
        return self.device

    def _prepared(self, ids: Tensor, cells: Tensor, slots: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Padded ids and cells, slots, and the last cell of each (library: NeuronModelBase._preprocess)."""
        width = ids.shape[1]
        speculative = int(cells.flatten()[0]) > 0  # TRAP: a first cell of 0 means a prompt, whatever was called
        if width == 1:
            return *self._of_all_slots(ids, cells, slots), torch.zeros(1, dtype=torch.int32)
        cells = self._of_speculation(ids, cells) if speculative else self._of_prompt(ids, cells)
        bucket = find(self._lengths() if speculative else self.context_buckets, width)
        last = cells.max(dim=1).values
        if width < bucket:
            ids = torch.nn.functional.pad(ids, (0, bucket - width))
            if not speculative:
                cells = torch.arange(bucket).expand(ids.shape[0], bucket)
        return ids, cells, slots, last

    def _lengths(self) -> list[int]:
        # TRAP: a set, whose order in Python need not be the ascending one that `find` needs.
        return list({length for length, _ in self.decoder_lm_head_for_speculation})

    def _of_prompt(self, ids: Tensor, cells: Tensor) -> Tensor:
        sequences, width = ids.shape
        bucket = find(self.context_buckets, width)
        assert sequences == cells.shape[0], f"invalid n_active_seqs ({sequences} vs {cells.shape[0]})"
        assert width <= bucket, f"invalid input prompt length ({width} <= {bucket})"
        filled = torch.zeros(sequences, bucket, dtype=cells.dtype)
        filled[:, :width] = cells
        return filled

    def _of_speculation(self, ids: Tensor, cells: Tensor) -> Tensor:
        sequences, width = ids.shape
        widest = find(self.context_buckets, width)
        assert width <= widest, f"invalid input prompt length ({width} <= {widest})"
        length = find(self._lengths(), width)
        batches = [batch for _, batch in self.decoder_lm_head_for_speculation]
        assert sequences in batches, f"invalid batch size for speculative forward ({sequences} not in {batches})"
        cells = cells.unsqueeze(0) if cells.ndim == 1 else cells
        assert cells.shape[0] == sequences, f"invalid n_active_seqs ({sequences} vs {cells.shape[0]})"
        # TRAP: padding goes to the last cell of the widest prompt. In a larger cache, that cell may hold a valid token.
        filled = torch.full((sequences, length), max(self.context_buckets) - 1, dtype=cells.dtype)
        filled[:, :width] = cells
        return filled

    def _of_all_slots(self, ids: Tensor, cells: Tensor, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # TRAP: a single token is run for all slots at once: in all other slots, token 0 is written to cell 0.
        every_id, every_cell = (torch.zeros(self._slots, 1, dtype=ids.dtype) for _ in range(2))
        index = slots.flatten().unsqueeze(-1).long()
        every_id.scatter_(0, index, ids)
        every_cell.scatter_(0, index, cells)
        return every_id, every_cell, torch.arange(self._slots)


def _doubling(most: int) -> list[int]:
    """The library's buckets for a number: 128, 256, … up to the number itself."""
    buckets = []
    bucket = 128
    while bucket < most:
        buckets.append(bucket)
        bucket *= 2
    return [*buckets, most]


class Program:
    """A program for `width` tokens of `batch` sequences, called with embeddings (library: decoder.py)."""

    def __init__(self, model: LlamaForSampling, width: int, batch: int) -> None:
        self.width, self.batch = width, batch
        self.return_all_outputs = True
        self.inputs_sdim: tuple[int | None, ...] = (1, 1, None, 0, None, None)  # by input: the dimension of tokens
        self._model = model

    def __call__(self, hidden: Tensor, cells: Tensor, slots: Tensor, last: Tensor, *unused: Tensor) -> Tensor:
        """Run it. `hidden`: (hidden, width, batch). Returns logits (vocab, width, batch), or (vocab, 1, batch) of the
        tokens at the indices `last`, where `return_all_outputs` was switched off."""
        assert len(unused) == 2 and self._model.device is not None
        logits = self._model.device.run(self.width, self.batch, hidden.transpose(0, -1), cells, slots, prompt=False)
        if self.return_all_outputs:
            return logits
        return torch.stack([logits[:, int(at), line] for line, at in enumerate(last)], dim=-1)[:, None]
