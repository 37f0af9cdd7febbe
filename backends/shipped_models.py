"""Paths of the shipped model files, which are beside this package in a checkout and in site-packages alike.

Nothing imports the package `models` at run time. Its name is common, and a `models.py` in the folder where a program
runs would be imported in its place. That package makes and converts model files; this module only locates them.
"""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent.parent / "models"

DEFAULT_TARGET: Final[Path] = _FOLDER / "stdlib-target-q8_0.gguf"
DEFAULT_DRAFT: Final[Path] = _FOLDER / "stdlib-draft-q8_0.gguf"
DEFAULT_TWIN: Final[Path] = _FOLDER / "stdlib-target-q4_0.gguf"
