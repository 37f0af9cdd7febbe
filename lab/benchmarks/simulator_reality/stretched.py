"""A configuration with all its times multiplied: what computes for a while computes longer, and all else keeps pace."""

from collections.abc import Callable
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.connections import between

_TIMES, _RATES = ("_ms", "_s"), ("rate_rps", "bandwidth_mbps")
_OF_A_NUMBER = ("value", "values", "mean", "min", "max")  # keys of a distribution that are times where it is one


def stretched(configuration: Configuration, factor: float) -> Configuration:
    """The configuration `factor` times as slow. What the programs themselves take is in no configuration, and stays."""
    given = configuration.model_dump(mode="json", exclude_none=True)
    devices = configuration.devices
    given["connections"] = [
        {"drafters": drafters.name, "verifiers": verifiers.name}
        | between(configuration.connections, drafters.name, verifiers.name)[0]._asdict()
        for drafters in devices.drafters
        for verifiers in devices.verifiers
    ]
    return Configuration.model_validate(_multiplied(given, factor))


def _multiplied(keys: Any, factor: float) -> Any:
    if isinstance(keys, list):
        return [_multiplied(each, factor) for each in keys]
    if not isinstance(keys, dict):
        return keys
    return {key: _of_key(key, value, factor) for key, value in keys.items()}


def _of_key(key: str, value: Any, factor: float) -> Any:
    if key in _RATES:
        return value / factor
    if not key.endswith(_TIMES):
        return _multiplied(value, factor)
    return _every(value, lambda number: factor * number)


def _every(value: Any, change: Callable[[float], float]) -> Any:
    """A time, or the distribution of one, changed."""
    if isinstance(value, dict):
        return {key: _every(each, change) if key in _OF_A_NUMBER else each for key, each in value.items()}
    if isinstance(value, list):
        return [change(each) for each in value]
    return change(value)
