"""Model folders for vLLM, made of GGUF files."""

import json
from pathlib import Path


def folder_of(file: Path, folder: Path, dtype: str = "float32") -> Path:
    """Write the model of a GGUF file as a folder in Hugging Face layout, its weights as `dtype`. Returns the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    of_file = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    weights = getattr(torch, dtype)
    read = AutoModelForCausalLM.from_pretrained(**of_file, dtype=weights)
    # The library saves no model that was read from a file of ggml: so another one is saved, which has its weights.
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read.config, dtype=weights)
    model.load_state_dict(read.state_dict(), assign=True)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**of_file).save_pretrained(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    size = model.config.vocab_size
    tokenizer["added_tokens"] = [each for each in tokenizer["added_tokens"] if each["id"] < size]  # but for padding
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder
