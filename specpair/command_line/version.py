"""The installed version of the distribution."""

from importlib.metadata import PackageNotFoundError, version

from specpair.extras import DISTRIBUTION


def installed() -> str:
    """The version that pip installed; a note in words for a checkout that was never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed: run from a checkout)"
