"""Reads a file of nodes: a table `[[nodes]]` for each."""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from gateway.router.nodes.node import NodeSpec
from gateway.router.upstream.pool import node_url
from specpair.command_line.given_values import SettingsError
from specpair.command_line.known_keys import KnownKeys

NodeUrl = Annotated[str, Field(max_length=500), AfterValidator(node_url)]
Weight = Annotated[float, Field(gt=0, le=1e6, description="How many texts it can take in relation to others.")]
HourlyPrice = Annotated[float, Field(ge=0, le=1e9, description="What an hour of it costs, in any currency.")]


class ListedNode(KnownKeys):
    """A node in the file."""

    model_config = ConfigDict(allow_inf_nan=False)
    url: NodeUrl
    model: str | None = None
    weight: Weight = 1.0
    hourly_price: HourlyPrice | None = None

    @property
    def spec(self) -> NodeSpec:
        return NodeSpec(self.url, self.model, self.weight, self.hourly_price)


class _File(KnownKeys):
    nodes: list[ListedNode] = Field(default_factory=list)


def read_nodes(path: Path) -> list[NodeSpec]:
    """The nodes in a file. Raises SettingsError, which names what is wrong in it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    try:
        nodes = [each.spec for each in _File.model_validate(content).nodes]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{path}: {where + ': ' if where else ''}{message}") from None
    urls = [each.url for each in nodes]
    if twice := next((url for url in urls if urls.count(url) > 1), None):
        raise SettingsError(f"{path}: {twice} is there twice: leave one out")
    return nodes
