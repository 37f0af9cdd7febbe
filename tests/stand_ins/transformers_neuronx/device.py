"""The replacement of the chip: a Llama with keys and values in cells, run by programs of fixed shapes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from models.safetensors_file import read_tensors
from tests.stand_ins.transformers_neuronx.config import LlamaConfig

_HIDDEN = -30000.0  # score of a masked cell


@contextmanager
def _one_thread() -> Iterator[None]:
    """A context with one thread: work as small as this takes many times as long on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Device:
    """Weights and caches. `cells` and `slots` are the caches' shape."""

    def __init__(self, config: LlamaConfig, folder: Path, cells: int, slots: int) -> None:
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[config.amp]
        tensors = read_tensors(folder / "model.safetensors")
        self._weights = {name: torch.from_numpy(data.copy()).to(dtype) for name, data in tensors.items()}
        self._config, self._cells = config, cells
        shape = (2, config.num_hidden_layers, cells, slots, config.num_key_value_heads, config.attention_head_size)
        self.caches = torch.zeros(shape, dtype=dtype)

    def embedded(self, ids: Tensor) -> Tensor:
        """The embeddings (…, hidden) of `ids`, which stay on the host."""
        return self._weights["model.embed_tokens.weight"][ids.long()]

    @_one_thread()
    def run(self, width: int, batch: int, x: Tensor, cells: Tensor, slots: Tensor, prompt: bool) -> Tensor:
        """Run the program for `width` tokens of `batch` sequences. Returns logits (vocab, width, batch).

        `x` are embeddings (batch, width, hidden), `cells` is (batch, width), `slots` is (batch,). A prompt attends to
        itself only and is written from cell 0 on, whatever `cells` says, which only sets its rotary positions (library:
        update_indices_context). Other tokens attend to the cells of their slot below the smallest of their own, and to
        the tokens before them (library: decoder_attention_mask_lhs_aligned_token_padded).
        """
        for name, tensor in (("ids", x), ("cells", cells)):
            shape = tuple(tensor.shape)[:2]
            assert shape == (batch, width), f"{name} of shape {shape} into ({batch}, {width})"
        most = width if prompt else self._cells
        if int(cells.max()) >= most:  # no program is large enough (library: find_bucket_id)
            raise StopIteration
        least = cells.min(dim=1).values
        below = torch.arange(self._cells) < least[:, None]  # (batch, cells)
        before = torch.ones(width, width).tril().bool().expand(batch, width, width)
        earlier = (below & (not prompt))[:, None, :].expand(batch, width, self._cells)
        mask = torch.cat([earlier, before], dim=2)[:, None]
        into = torch.arange(width).expand(batch, width) if prompt else cells
        # TRAP: a batch of all slots is read in the caches' order, whatever `slots` says (library: llama/hlo.py).
        read = torch.arange(batch) if batch == self.caches.shape[3] else slots
        for layer in range(self._config.num_hidden_layers):
            x = x + self._attention(f"model.layers.{layer}", layer, x, cells, into, slots, read, mask)
            x = x + self._feed_forward(f"model.layers.{layer}", x)
        head = self._weights.get("lm_head.weight", self._weights["model.embed_tokens.weight"])
        return (self._norm(x, "model.norm.weight") @ head.T).permute(2, 1, 0)

    def _attention(
        self, name: str, layer: int, x: Tensor, cells: Tensor, into: Tensor, slots: Tensor, read: Tensor, mask: Tensor
    ) -> Tensor:
        batch, width, _ = x.shape
        size = self._config.attention_head_size
        groups = self._config.num_attention_heads // self._config.num_key_value_heads
        normed = self._norm(x, f"{name}.input_layernorm.weight")
        query, key, value = (
            (normed @ self._weights[f"{name}.self_attn.{part}_proj.weight"].T).reshape(batch, width, -1, size)
            for part in "qkv"
        )
        query, key = self._rotated(query, cells), self._rotated(key, cells)
        held = self.caches[:, layer][:, :, read].transpose(1, 2)  # (2, batch, cells, heads, size)
        keys, values = torch.cat([held[0], key], dim=1), torch.cat([held[1], value], dim=1)
        keys, values = (each.repeat_interleave(groups, dim=2).transpose(1, 2) for each in (keys, values))
        scores = query.transpose(1, 2) @ keys.transpose(2, 3) / size**0.5
        shares = scores.masked_fill(~mask, _HIDDEN).float().softmax(dim=-1).to(values.dtype)
        for number, slot in enumerate(slots.tolist()):  # of several tokens for one cell, any may remain
            self.caches[0, layer, into[number], slot] = key[number]
            self.caches[1, layer, into[number], slot] = value[number]
        joined = (shares @ values).transpose(1, 2).reshape(batch, width, -1)
        return joined @ self._weights[f"{name}.self_attn.o_proj.weight"].T

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        normed = self._norm(x, f"{name}.post_attention_layernorm.weight")
        gate, up = (normed @ self._weights[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return (torch.nn.functional.silu(gate) * up) @ self._weights[f"{name}.mlp.down_proj.weight"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self._config.rms_norm_eps)
        return (wide * scale).to(x.dtype) * self._weights[name]

    def _rotated(self, x: Tensor, cells: Tensor) -> Tensor:
        """`x` with rotary positions, which are the cells."""
        half = self._config.attention_head_size // 2
        speeds = self._config.rope_theta ** (-torch.arange(half) / half)
        angles = (cells[..., None].float() * speeds)[:, :, None, :]
        first, second = x[..., :half], x[..., half:]
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
