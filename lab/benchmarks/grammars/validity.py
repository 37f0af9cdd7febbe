"""Whether the texts of a pair are valid under the schemas that they keep to.

Method. Each of the twenty schemas of `lab.benchmarks.grammars.schemas` is written `--texts` times at each temperature,
each time behind a prompt and with a seed of its own, by the pair in mode remote, `--at-once` texts at a time. Every
tenth text is written in the modes target and fused, too, where it must be the same, since the verifier's logits are
deterministic. Each text is read as JSON and validated by the package jsonschema-rs, which knows nothing of how it was
made. The schemas bound the length, so each text can end within `--tokens`.

    python -m lab.benchmarks.grammars.validity [--target BF16.gguf --draft SMALL.gguf] [--texts 17]
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.grammars.schemas import SCHEMAS
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier

FLAGS = {
    "target": str(DEFAULT_TARGET),
    "draft": str(DEFAULT_DRAFT),
    "texts": 17,
    "at_once": 2,
    "tokens": 600,
    "temperatures": [0.0, 0.8, 1.5],
    "schemas": {"default": [*SCHEMAS], "choices": [*SCHEMAS]},
}
_EVERY = 10  # of so many texts one is written in the other modes, too


class _Written(NamedTuple):
    name: str  # of the schema
    tokens: int
    forced: int  # tokens that the grammar gave
    cut: bool  # by the length
    fault: str | None  # what is wrong with it; None: nothing
    same: list[bool]  # whether the other modes wrote the same


def main() -> None:
    options = options_of(__doc__, FLAGS, "jsonschema_rs")
    report = Report("grammars.validity", options, "grammars_validity")
    served = {
        "model": options.target,
        "draft_model": options.draft,
        "slots": options.at_once + 1,
        "deterministic": True,
    }
    texts = list(_texts(options))
    with (
        verifier(**served, threads=1, draft_threads=1) as server,
        Pair(server.url, DraftModel(Path(options.draft)), texts=options.at_once) as pair,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        written: list[_Written] = []
        for name, group in groupby(pool.map(lambda each: _written(pair, *each), texts), lambda each: each.name):
            written += (some := list(group))
            report.line(f"{name:17} {_summary(some)}")
    same = [each for one in written for each in one.same]
    report.line(
        f"{_summary(written)}; {sum(same)} of {len(same)} the same text in the modes target and fused",
        *(each.fault for each in written if each.fault is not None),
    )
    report.save()


def _texts(options: Any) -> Iterator[tuple[str, Options, bool]]:
    """Of each text: its schema's name, the options, and whether it is written in the other modes, too."""
    number = 0
    for name in options.schemas:
        for temperature in options.temperatures:
            for seed in range(options.texts):
                number += 1
                how = Options(
                    max_tokens=options.tokens,
                    temperature=temperature,
                    seed=seed,
                    json_schema=SCHEMAS[name],
                    mode=Mode.REMOTE,
                )
                yield name, how, number % _EVERY == 0


def _written(pair: Pair, name: str, how: Options, compared: bool) -> _Written:
    prompt = f"The schema {json.dumps(SCHEMAS[name])}. JSON for {name} number {how.seed} under it:\n"
    done = pair.generate(prompt, how).read()
    fault = _fault(jsonschema_rs.Draft202012Validator(SCHEMAS[name]), done.text)
    if fault is not None:
        fault = f"{name}, temperature {how.temperature:g}, seed {how.seed}: {fault}: {done.text[:200]!r}"
    modes = (Mode.TARGET, Mode.FUSED) if compared else ()
    same = [pair.generate(prompt, how.in_mode(mode)).read().text == done.text for mode in modes]
    forced = done.stats.report("")["from_grammar"]
    return _Written(name, len(done.token_ids), forced, done.finish_reason == "length", fault, same)


def _summary(written: Sequence[_Written]) -> str:
    valid, tokens = sum(each.fault is None for each in written), sum(each.tokens for each in written)
    return (
        f"{valid} of {len(written)} valid, {sum(each.cut for each in written)} cut by the length; {tokens} tokens, "
        f"{sum(each.forced for each in written) / tokens:.0%} of them from the grammar"
    )


def _fault(validator: jsonschema_rs.Draft202012Validator, text: str) -> str | None:
    """What is wrong with a text; None: nothing."""
    try:
        document = json.loads(text)
    except ValueError as error:
        return f"no JSON ({error})"
    fault = next(validator.iter_errors(document), None)
    return None if fault is None else fault.message


if __name__ == "__main__":
    main()
