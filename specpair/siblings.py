"""Imports the engines from beside this package, whatever else is called `backends`.

`python -m` and uvicorn put the working folder before all installed packages, and so does a program its own folder. A
folder of the user's with that name would be imported in its place.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

ENGINES = "backends"
_FOLDER = Path(__file__).resolve().parent.parent


def import_siblings() -> None:
    """Import the package `ENGINES`, before a module of it is imported.

    Raises ImportError if the program has imported another module of that name before.
    """
    loaded = sys.modules.get(ENGINES)
    if loaded is None:
        _import()
    elif Path(getattr(loaded, "__file__", None) or "").resolve() != _FOLDER / ENGINES / "__init__.py":
        raise ImportError(
            f"the module {ENGINES!r} of this program, {loaded!r}, has the name of a package of specpair: "
            "rename it, or use specpair in a process of its own"
        )


def _import() -> None:
    spec = PathFinder.find_spec(ENGINES, [str(_FOLDER)])
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no package {ENGINES!r} in {_FOLDER}: install specpair again")
    sys.modules[ENGINES] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
