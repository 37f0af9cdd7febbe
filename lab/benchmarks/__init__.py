"""Measurements, each with its method in its docstring. Run as modules: `python -m lab.benchmarks.end_to_end`."""
