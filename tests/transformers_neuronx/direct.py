"""Calls of the library itself, without the backend: a model, and helpers that take plain lists."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.models.conftest import TinyModel, reference_logits


class Direct:
    """A tiny model on `library`: the real one or its stand-in."""

    def __init__(
        self,
        library: Any,
        made: TinyModel,
        *,
        slots: int = 3,
        cells: int = 256,
        spans: Sequence[int] = (),
        buckets: Sequence[int] = (128, 256),
        lengths: Sequence[int] = (4, 8, 16),
        batch_sizes: Sequence[int] = (1,),
        windows: Sequence[int] = (),
        cores: int = 1,
        workers: int | None = None,
        compiled: Path | None = None,
    ) -> None:
        """`spans`: numbers of cells, fewer than all, with programs of their own. `windows`: widths of programs that
        return the last token's logits only. `compiled`: a folder to load from."""
        self.made = made
        more = {} if workers is None else {"compilation_worker_count": workers}
        batching = library.ContinuousBatchingConfig(max_num_seqs=slots)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's: lazy modules, key-value heads that are copied
            self.model = library.LlamaForSampling.from_pretrained(
                str(made.folder),
                n_positions=[*spans, cells],
                batch_size=slots,
                tp_degree=cores,
                context_length_estimate=list(buckets),
                neuron_config=library.NeuronConfig(continuous_batching=batching, **more),
            )
            self.model.enable_speculative_decoder(list(lengths), list(batch_sizes))
            for width in windows:
                self._add_window(width)
        if compiled is not None:
            self.model.load(str(compiled))
        self.model.to_neuron()

    def prompt(self, slot: int, ids: Sequence[int]) -> Any:
        """A pass from cell 0 on. Returns the logits (vocab,) of the last id."""
        logits = self.model.forward(_tensor([ids]), cache_ids=_tensor([range(len(ids))]), start_ids=_tensor([slot]))
        return logits[0].float().numpy()

    def speculate(self, slots: Sequence[int], ids: Sequence[Sequence[int]], cells: Sequence[Sequence[int]]) -> Any:
        """A pass over one row of ids for each slot. Returns logits (width, vocab, slots)."""
        logits = self.model.speculative_forward(
            _tensor(ids), cache_ids=_tensor(cells), start_ids=_tensor(slots), speculation_length=len(ids[0])
        )
        return logits.float().numpy()

    def window(self, slot: int, ids: Sequence[int], cells: Sequence[int], last: int) -> Any:
        """A pass that returns the logits (vocab, 1, 1), padding included, of the id with the index `last` only."""
        head = self.model.decoder_lm_head_for_window_context[len(ids)]
        with torch.inference_mode():
            hidden = self.model.chkpt_model.model.embed_tokens(_tensor([ids])).transpose(0, -1).contiguous()
            unused = _tensor([0])
            return head(hidden, _tensor([cells]), _tensor([slot]), _tensor([last]), unused, unused)

    def expected(self, ids: Sequence[int]) -> Any:
        return reference_logits(self.made.config, self.made.weights, ids)

    def _add_window(self, width: int) -> None:
        model = self.model
        head = model.decoder_param_set.init_speculative_decoder(
            unroll=model.unroll, buckets=model.token_buckets, model_obj=model, n_active_tokens=width, batch_size=1
        )
        head.return_all_outputs = False
        model.decoder_lm_head_for_window_context[width] = head


def _tensor(values: Sequence[Any]) -> Any:
    return torch.tensor([list(each) if isinstance(each, range) else each for each in values], dtype=torch.int32)
