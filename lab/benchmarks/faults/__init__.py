"""The suite of faults: see `__main__`."""
