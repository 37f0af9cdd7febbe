"""JSON files of a model folder in Hugging Face layout, read without any library for models."""

import json
from pathlib import Path
from typing import Any

from backends.contract import ModelLoadError


def read_json(path: Path) -> dict[str, Any]:
    """A file that a model folder may have or not. Raises ModelLoadError for one that cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is no readable JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return content
