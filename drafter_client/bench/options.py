"""`BenchOptions`: how `drafter bench` measures, each option said once."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from drafter_client.bench.records import Interleaving
from specpair.options.option import option


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Flags of `drafter bench` are made from these fields, in groups of the help."""

    case: tuple[str, ...] = option(
        (),
        "name of a case, or aws-* for all that begin so (default: all)",
        item=str,
        items=tuple,
        group="cases",
        placeholder="NAME",
    )
    cases: tuple[Path, ...] = option(
        (), "file or folder of cases of your own", item=Path, items=tuple, group="cases", placeholder="PATH"
    )
    requests: int | None = option(None, "requests in a repetition, in place of the case's", ge=1, group="cases")
    clients: int | None = option(None, "requests under way at once, in place of the case's", ge=1, group="cases")
    output_tokens: int | None = option(None, "most tokens of a text, in place of the case's", ge=1, group="cases")
    side: tuple[str, ...] = option(
        (), "an endpoint of OpenAI's API, under a name", item=str, items=tuple, group="sides", placeholder="NAME=URL"
    )
    modes: tuple[str, ...] = option(
        (),
        "a drafter's or verifier's endpoint: each of its modes is a side",
        item=str,
        items=tuple,
        group="sides",
        placeholder="URL",
    )
    model: tuple[str, ...] = option(
        (),
        "model to ask for (default: the first it lists)",
        item=str,
        items=tuple,
        group="sides",
        placeholder="[NAME=]MODEL",
    )
    key: tuple[str, ...] = option(
        (), "variable that holds its key", item=str, items=tuple, group="sides", placeholder="[NAME=]VARIABLE"
    )
    price: tuple[str, ...] = option(
        (), "what an hour of its machines costs", item=str, items=tuple, group="sides", placeholder="[NAME=]PRICE"
    )
    extra: tuple[str, ...] = option(
        (), "object to add to the body of each request", item=str, items=tuple, group="sides", placeholder="[NAME=]JSON"
    )
    repetitions: int = option(3, "times that each case is run", ge=1, le=1000, group="measuring")
    warm_up: int = option(1, "requests before, which are not measured", ge=0, le=1000, group="measuring")
    interleave: str = option(
        "auto",
        "how sides take turns; auto: by requests in cases with one at a time, by blocks in others",
        choices=get_args(Interleaving),
        group="measuring",
    )
    seed: int = option(0, "of texts and of random arrivals", ge=0, lt=2**53, group="measuring")
    timeout: float = option(
        600.0, "how long a reply may be silent", gt=0, le=86400, group="measuring", placeholder="SECONDS"
    )
    output: Path | None = option(
        None, "folder for the results; a run there goes on", usually="bench-DATE", group="output", placeholder="DIR"
    )
    texts: bool = option(True, "keep what was written; their hashes are kept in any case", group="output")
