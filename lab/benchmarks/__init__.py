"""Measurements, each with its method in its docstring. Run as modules: `python -m lab.benchmarks.exactness`."""

import sys

from specpair.extras import show_missing_extras

if sys.argv[:1] == ["-m"]:
    show_missing_extras()
