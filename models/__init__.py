"""The default model pair and the recipe that made it; models by name: the hub, the catalogue, their commands.

Four GGUF files are beside this module, so that both ends can run before anything is downloaded. The models continue
Python source and know nothing else:

* ``DEFAULT_TARGET``: the target model (7.3 M parameters, Q8_0).
* ``DEFAULT_DRAFT``: the draft model (0.9 M parameters, Q8_0), distilled from the target.
* ``DEFAULT_TWIN``: the target in Q4_0. As a draft model, it has a far higher acceptance rate than the small one, and
  costs nearly as much as the target: for a fast machine and a slow link.
* ``DEFAULT_HEAD``: one more layer for the target, which then drafts for itself (0.9 M parameters, Q8_0). The file holds
  that layer alone; ``models.heads`` makes one model of both.

The models share one vocabulary of 4,096 ids. ``models.export`` writes such files, ``models.training`` makes such a pair
and such a head; neither is imported here.
"""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent

DEFAULT_TARGET: Final[Path] = _FOLDER / "stdlib-target-q8_0.gguf"
DEFAULT_DRAFT: Final[Path] = _FOLDER / "stdlib-draft-q8_0.gguf"
DEFAULT_TWIN: Final[Path] = _FOLDER / "stdlib-target-q4_0.gguf"
DEFAULT_HEAD: Final[Path] = _FOLDER / "stdlib-head-q8_0.gguf"
