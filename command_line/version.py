"""The version of what is installed."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "specpair"


def installed() -> str:
    """As pip has it; in a checkout that was never installed there is none to ask for."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed: run from a checkout)"
