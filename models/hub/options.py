"""The option that names a model on the hub, said once for both ends."""

from dataclasses import dataclass

from models.hub.names import parse_name
from specpair.options.option import option


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Settings of ends are made from it, with `like`."""

    hf: str | None = option(
        None,
        "model on Hugging Face, which is fetched unless it is in the cache, as user/repo or user/repo:Q8_0",
        check=parse_name,
        group="model",
        placeholder="NAME",
        short="-hf",
    )
