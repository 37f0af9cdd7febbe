"""Where the model files that ship are: found by path, beside this package in a checkout and in site-packages alike.

Nothing at run time imports the package `models`: that name is common, and a `models.py` in the folder a program runs in
would take its place. The package makes and converts such files; this module only says where they lie.
"""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent.parent / "models"

DEFAULT_TARGET: Final[Path] = _FOLDER / "stdlib-target-q8_0.gguf"
DEFAULT_DRAFT: Final[Path] = _FOLDER / "stdlib-draft-q8_0.gguf"
DEFAULT_TWIN: Final[Path] = _FOLDER / "stdlib-target-q4_0.gguf"
