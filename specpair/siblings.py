"""Imports the packages of this project, even if another package has the same name.

`python -m` and uvicorn put the working folder before all installed packages, and so does a program its own folder. A
folder of the user's with such a name would be imported in its place.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

SIBLINGS = ("models", "backends", "gateway")
_FOLDER = Path(__file__).resolve().parent.parent


def import_siblings() -> None:
    """Import each of `SIBLINGS`, before a module of it is imported.

    Raises ImportError if the program has imported another module of one of these names before.
    """
    for name in SIBLINGS:
        loaded = sys.modules.get(name)
        if loaded is None:
            spec = PathFinder.find_spec(name, [str(_FOLDER)])
            if spec is None or spec.loader is None:
                raise ImportError(f"there is no package {name!r} in {_FOLDER}: install specpair again")
            sys.modules[name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
        elif Path(getattr(loaded, "__file__", None) or "").resolve() != _FOLDER / name / "__init__.py":
            raise ImportError(
                f"the module {name!r} of this program, {loaded!r}, has the name of a package of specpair: "
                "rename it, or use specpair in a process of its own"
            )
