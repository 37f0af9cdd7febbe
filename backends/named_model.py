"""The file of a model that is named on the hub, for an engine to load."""

from collections.abc import Callable
from pathlib import Path

from specpair.engines.errors import ModelLoadError
from specpair.extras import MissingExtra
from specpair.hub.download import fetch_model
from specpair.hub.errors import HubError
from specpair.hub.names import parse_name
from specpair.hub.repository import Hub


def file_of(name: str, progress: Callable[[int, int], None]) -> Path:
    """The file of the model `name`, fetched unless it is in the cache. Raises ModelLoadError.

    `progress`: is told the bytes that are here and those of the whole model, while it is fetched.
    """
    try:
        return fetch_model(parse_name(name), Hub(), progress)
    except (HubError, MissingExtra) as error:
        raise ModelLoadError(str(error)) from error
