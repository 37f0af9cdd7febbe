"""`BenchOptions`: how `drafter bench` measures, each option said once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from lab.bench.records import Interleaving
from specpair.options.option import option


def _several(words: str, placeholder: str, group: str = "sides", item: type = str) -> Any:
    """An option that may be given more than once."""
    return option((), words, item=item, items=tuple, group=group, placeholder=placeholder)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Flags of `drafter bench` are made from these fields, in groups of the help."""

    case: tuple[str, ...] = _several("name of a case, or aws-* for all that begin so (default: all)", "NAME", "cases")
    cases: tuple[Path, ...] = _several("file or folder of cases of your own", "PATH", "cases", Path)
    requests: int | None = option(None, "requests in a repetition, in place of the case's", ge=1, group="cases")
    clients: int | None = option(None, "requests under way at once, in place of the case's", ge=1, group="cases")
    output_tokens: int | None = option(None, "most tokens of a text, in place of the case's", ge=1, group="cases")
    side: tuple[str, ...] = _several("an endpoint of OpenAI's API, under a name", "NAME=URL")
    modes: tuple[str, ...] = _several("a drafter's or verifier's endpoint: each of its modes is a side", "URL")
    model: tuple[str, ...] = _several("model to ask for (default: the first it lists)", "[NAME=]MODEL")
    key: tuple[str, ...] = _several("variable that holds its key", "[NAME=]VARIABLE")
    price: tuple[str, ...] = _several("what an hour of its machines costs; 0: not known", "[NAME=]PRICE")
    extra: tuple[str, ...] = _several("object to add to the body of each request", "[NAME=]JSON")
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
