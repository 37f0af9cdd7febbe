"""Tokens per second of ten tasks whose answers are JSON, with their grammar and without, in each mode.

Method. A verifier serves the target and the draft model, and the pair drafts with the same file here, a thread each.
Ten questions, five extractions and five calls of tools, show the form of their answer, go through the chat template (if
there is one), and are answered in each mode with the grammar and without, by turns, `--runs` times at each temperature.
All prompts are cold. Rates are of the tokens behind the first one, and of the time to the last one from when the first
one comes without the grammar: what the grammar takes before it counts, too. With the grammar an answer has other tokens
than without (no spaces for looks, no fence around it), so the second ratio is of the times of whole answers, their
prompts included. Answers without the grammar are counted as valid where they are JSON that is valid under the schema,
and nothing else but a fence.

    python -m lab.benchmarks.grammars [--target BF16.gguf --draft SMALL.gguf] [--runs 1]
"""

import json
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jsonschema_rs
import yaml

from drafter_client import DraftModel, Mode, Options, Pair
from lab.benchmarks.harness.report import Report, options_of
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.child_processes.serving import verifier


class Task(NamedTuple):
    """What a model is asked, and the schema of its answer."""

    name: str
    question: str
    schema: dict[str, Any]

    @property
    def content(self) -> str:
        """The message, which shows the form, so that a model answers in it without a grammar, too."""
        asked = "Answer with one line of JSON in this form, filled in, and nothing else:"
        return f"{self.question}\n{asked}\n{json.dumps(_form(self.schema), ensure_ascii=False)}"


def _form(schema: Any) -> Any:
    """What a text under a schema looks like."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return " or ".join(schema["enum"])
    match schema["type"]:
        case "object":
            return {key: _form(value) for key, value in schema["properties"].items()}
        case "array":
            return [_form(schema["items"])]
        case "boolean":
            return "true or false"
        case "integer":
            return "a number"
        case _:
            return "…"


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every property of its objects required, and no other one allowed."""
    if "items" in schema:
        return schema | {"items": _closed(schema["items"])}
    if "properties" not in schema:
        return schema
    properties = {name: _closed(each) for name, each in schema["properties"].items()}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


TASKS = [
    Task(each["name"], each["question"], _closed(each))
    for each in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
]
LONG_KEYS = ("delivery", "review", "meeting", "flight", "query")

FLAGS = {
    "target": str(DEFAULT_TARGET),
    "draft": str(DEFAULT_DRAFT),
    "runs": 1,
    "tokens": 200,
    "temperatures": [0.0, 0.8],
    "modes": {"default": ["target", "remote", "fused"], "choices": [*Mode]},
}


class _Answer(NamedTuple):
    tokens: int
    seconds: float  # from the request to the last token
    first: float  # seconds until the first token
    valid: bool
    forced: int  # tokens that the grammar gave


def main() -> None:
    options = options_of(__doc__, FLAGS, "jsonschema_rs")
    report = Report("grammars", options)
    served = {"model": options.target, "draft_model": options.draft, "slots": 2, "threads": 1, "draft_threads": 1}
    answers: dict[tuple[str, float, bool, str], list[_Answer]] = defaultdict(list)
    with verifier(**served) as server, Pair(server.url, DraftModel(Path(options.draft))) as pair:
        _answer(pair, TASKS[0], Options(max_tokens=8, json_schema=TASKS[0].schema))  # the vocabulary is read once
        for run in range(options.runs):
            for number, task in enumerate(TASKS):
                for temperature in options.temperatures:
                    for mode in options.modes:
                        for keeps in (True, False) if (run + number) % 2 else (False, True):
                            grammar: dict[str, Any] = {"json_schema": task.schema} if keeps else {}
                            how = Options(
                                max_tokens=options.tokens, temperature=temperature, seed=run, mode=Mode(mode), **grammar
                            )
                            answers[mode, temperature, keeps, task.name].append(_answer(pair, task, how))
    for temperature in options.temperatures:
        report.line(
            f"\ntemperature {temperature:g}: with the grammar over without, the ten tasks and those of long keys"
        )
        for mode in options.modes:
            report.line(_row(mode, *(_pairs(answers, mode, temperature, names) for names in (None, LONG_KEYS))))
    report.save()


def _answer(pair: Pair, task: Task, how: Options) -> _Answer:
    prompt = task.content if pair.target.chat_template is None else pair.chat(task.content)
    began = time.perf_counter()
    done = pair.generate(prompt, how.cold()).read()
    took, stats = time.perf_counter() - began, done.stats
    try:
        valid = jsonschema_rs.is_valid(task.schema, json.loads(done.text.removeprefix("```json").removesuffix("```")))
    except ValueError:
        valid = False
    return _Answer(stats.generated_tokens, took, stats.ttft_ms / 1e3, valid, stats.report("")["from_grammar"])


def _pairs(answers: Any, mode: str, temperature: float, names: Any) -> tuple[list[_Answer], list[_Answer]]:
    chosen = [task.name for task in TASKS if names is None or task.name in names]
    kept, free = (
        [each for name in chosen for each in answers[mode, temperature, keeps, name]] for keeps in (True, False)
    )
    return kept, free


def _row(mode: str, *groups: tuple[list[_Answer], list[_Answer]]) -> str:
    return f"  {mode:7} " + "\n          ".join(_compared(*each) for each in groups)


def _compared(kept: list[_Answer], free: list[_Answer]) -> str:
    """A line about the answers with the grammar and those without."""
    prompts = sum(each.first for each in free)
    rate, other = (
        sum(each.tokens - 1 for each in some) / (sum(each.seconds for each in some) - prompts) for some in (kept, free)
    )
    time_of = sum(each.seconds for each in kept) / sum(each.seconds for each in free)
    later = median(each.first for each in kept) - median(each.first for each in free)
    return (
        f"{rate:5.1f} / {other:5.1f} tokens/s = {rate / other:.2f}, answers in {time_of:.2f} of the time; "
        f"valid {sum(each.valid for each in kept)} / {sum(each.valid for each in free)} of {len(kept)}; "
        f"{sum(each.forced for each in kept) / sum(each.tokens for each in kept):.0%} from the grammar; "
        f"TTFT {1e3 * later:+.0f} ms"
    )


if __name__ == "__main__":
    main()
