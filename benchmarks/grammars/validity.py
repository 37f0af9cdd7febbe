"""Whether the texts of a pair are valid under the schemas that they keep to.

Method. Each of the twenty schemas of `benchmarks.grammars.schemas` is written `--texts` times at each temperature, with
seeds of their own, by the pair in mode remote, and every tenth text in the modes target and fused, too, where it must
be the same. Each text is read as JSON and validated by the package jsonschema-rs, which knows nothing of
how it was made. The schemas bound the length, so each text can end within `--tokens`.

    python -m benchmarks.grammars.validity [--target BF16.gguf --draft SMALL.gguf] [--texts 17]
"""

import json
from collections import Counter
from pathlib import Path

import jsonschema_rs

from benchmarks.grammars.schemas import SCHEMAS
from benchmarks.harness.report import Report, options_of
from drafter_client import DraftModel, Mode, Options, Pair
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier

FLAGS = {
    "target": str(DEFAULT_TARGET),
    "draft": str(DEFAULT_DRAFT),
    "texts": 17,
    "tokens": 600,
    "temperatures": [0.0, 0.8, 1.5],
    "schemas": {"default": [*SCHEMAS], "choices": [*SCHEMAS]},
}
_EVERY = 10  # of so many texts one is written in the other modes, too


def main() -> None:
    options = options_of(__doc__, FLAGS, "jsonschema_rs")
    report = Report("grammars.validity", options, "grammars_validity")
    served = {"model": options.target, "draft_model": options.draft, "slots": 2, "threads": 1, "draft_threads": 1}
    counts, wrong = Counter[str](), list[str]()
    with verifier(**served) as server, Pair(server.url, DraftModel(Path(options.draft))) as pair:
        for name in options.schemas:
            schema, validator = SCHEMAS[name], jsonschema_rs.Draft202012Validator(SCHEMAS[name])
            prompt = f"JSON for a {name}, under the schema {json.dumps(schema)}:\n"
            before = Counter(counts)
            for temperature in options.temperatures:
                for seed in range(options.texts if temperature else max(1, options.texts // 4)):
                    how = Options(
                        max_tokens=options.tokens,
                        temperature=temperature,
                        seed=seed,
                        json_schema=schema,
                        mode=Mode.REMOTE,
                    )
                    done = pair.generate(prompt, how).read()
                    counts["texts"] += 1
                    counts["tokens"] += len(done.token_ids)
                    counts["from the grammar"] += done.stats.report("")["from_grammar"]
                    counts["cut"] += done.finish_reason == "length"
                    fault = _fault(validator, done.text)
                    counts["valid"] += fault is None
                    if fault is not None:
                        wrong.append(f"{name}, temperature {temperature:g}, seed {seed}: {fault}: {done.text[:200]!r}")
                    if counts["texts"] % _EVERY == 0:
                        for mode in (Mode.TARGET, Mode.FUSED):
                            counts["compared"] += 1
                            counts["same"] += pair.generate(prompt, how.in_mode(mode)).read().text == done.text
            new = counts - before
            report.line(
                f"{name:17} {new['valid']} of {new['texts']} valid, {new['cut']} cut; {new['tokens']} tokens, "
                f"{new['from the grammar'] / new['tokens']:.0%} of them from the grammar"
            )
    report.line(
        f"{counts['valid']} of {counts['texts']} valid, {counts['cut']} cut by the length; "
        f"{counts['same']} of {counts['compared']} the same text in the modes target and fused",
        *wrong,
    )
    report.save()


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
