"""How to install what a part of the program needs in addition: from a checkout, or beside a wheel."""

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent


def installing(extra: str, folder: Path = _FOLDER) -> str:
    """The command that installs an extra of pyproject.toml. `folder`: where the packages lie; a checkout has a file of
    requirements for each extra there, which may differ from those of a wheel."""
    file = f"requirements/{extra}.txt"
    return f"{sys.executable} -m pip install " + (f"-r {file}" if (folder / file).is_file() else f"'specpair[{extra}]'")
