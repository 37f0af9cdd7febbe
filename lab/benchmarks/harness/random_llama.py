"""Makes Llamas of known shapes with random weights, where they run: a pass costs as much as a real model's.

No file of weights is written or read, so that a shape of 16 GB takes the seconds that its device needs to draw the
numbers. Needs torch and transformers.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import LoadOptions

_BEGIN, _END = "<|begin|>", "<|end|>"


@contextmanager
def model_folder(name: str, shape: dict[str, Any]) -> Iterator[Path]:
    """The folder of a Llama of this shape without its weights: `read_random` makes them."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / name
        folder.mkdir()
        # The bytes, a begin and an end: nothing asks what other ids spell.
        alphabet = sorted(ByteLevel.alphabet())
        tokenizer = Tokenizer(BPE(vocab={sign: at for at, sign in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.decoder = ByteLevelDecoder()
        tokenizer.add_special_tokens([_BEGIN, _END])
        config = {
            **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"},
            **{"max_position_embeddings": 8192, "rms_norm_eps": 1e-5},
            "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
            "bos_token_id": tokenizer.token_to_id(_BEGIN),
            "eos_token_id": tokenizer.token_to_id(_END),
        }
        (folder / "config.json").write_text(json.dumps(config | shape), encoding="utf-8")
        tokenizer.save(str(folder / "tokenizer.json"))
        yield folder


def read_random(path: Path | None, options: LoadOptions, device: torch.device, dtype: torch.dtype) -> Any:
    """The model that `config.json` describes, with the same random weights each time. Raises ModelLoadError.

    Stands in for `backends.torch.read_model.load_model`.
    """
    if path is None:
        raise ModelLoadError("a random model needs a folder with a config.json that tells its shape")
    transformers.utils.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    attention = None if options.flash_attention else "eager"

    torch.manual_seed(0)
    try:
        with device:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    except (RuntimeError, MemoryError) as error:
        raise ModelLoadError(f"{path.name} in {dtype} does not fit on {device}: {first_line(error)}") from error
    return model.to(device).eval().requires_grad_(False)
