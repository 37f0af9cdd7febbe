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


def record(**properties: Any) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def words(most: int = 24) -> dict[str, Any]:
    return {"type": "string", "maxLength": most}


def number(low: float, high: float) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def array(items: Any, least: int = 0, most: int = 3) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_MAIL = (
    "From: Petra Holm <petra.holm@example.org>. On 3 May 2024 she ordered two lamps at 39 euros each and a desk "
    "at 210 euros, to be sent to 12 Harbour Street in Malmö by 17 May. She has paid by card."
)
_TOOLS = (
    "You can call get_weather(location, unit), send_mail(to, subject, body) and add_event(title, day, hour, minutes). "
)


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return record(name={"const": name}, arguments=record(**arguments))


TASKS = (
    Task("contact", f"Who wrote, and with which address? {_MAIL}", record(name=words(40), email=words(60))),
    Task(
        "order",
        f"What was ordered? {_MAIL}",
        record(
            items=array(record(name=words(30), count=number(1, 99), price=number(0, 999)), 1, 4),
            paid={"type": "boolean"},
        ),
    ),
    Task(
        "delivery",
        f"Extract the delivery. {_MAIL}",
        record(
            name_of_the_recipient=words(40),
            street_and_number_of_the_address=words(40),
            city_of_the_address=words(20),
            latest_date_of_the_delivery={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        ),
    ),
    Task(
        "review",
        'Judge this review: "The lamp is bright and well made, but the cable is far too short, and nobody replied."',
        record(
            overall_sentiment_of_the_review={"enum": ["positive", "mixed", "negative"]},
            praised_properties_of_the_product=array(words(20), 0, 3),
            criticised_properties_of_the_product=array(words(20), 0, 3),
            whether_the_customer_would_buy_again={"type": "boolean"},
        ),
    ),
    Task(
        "meeting",
        "Extract the meeting: Anna, Bo and Chen meet on Tuesday at half past nine in room 4 to plan version 2.",
        record(
            participants_of_the_meeting=array(words(12), 1, 5),
            day_of_the_week={"enum": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]},
            start_of_the_meeting={"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
            number_of_the_room=number(1, 99),
        ),
    ),
    Task(
        "weather",
        f"{_TOOLS}What is the weather in Lisbon?",
        _call("get_weather", location=words(30), unit={"enum": ["celsius", "fahrenheit"]}),
    ),
    Task(
        "mail",
        f"{_TOOLS}Tell bo@example.org that lunch is at noon.",
        _call("send_mail", to=words(40), subject=words(40), body=words(120)),
    ),
    Task(
        "event",
        f"{_TOOLS}Put the dentist on Friday at 14:30 for 45 minutes.",
        _call("add_event", title=words(40), day=words(12), hour=number(0, 23), minutes=number(0, 240)),
    ),
    Task(
        "flight",
        "Book a flight from Oslo to Rome on 2 June 2025 for two adults and one child, at a window, without a bag.",
        _call(
            "book_a_flight_for_passengers",
            departure_airport_or_city=words(20),
            destination_airport_or_city=words(20),
            number_of_adult_passengers=number(1, 9),
            number_of_child_passengers=number(0, 9),
            preferred_kind_of_seat={"enum": ["window", "aisle", "any"]},
            whether_a_bag_is_checked_in={"type": "boolean"},
        ),
    ),
    Task(
        "query",
        "Query the customers: the ten with the largest total of orders in 2024, from Norway, the largest first.",
        _call(
            "query_the_customer_database",
            country_of_the_customer=words(20),
            year_of_the_orders=number(2000, 2030),
            column_to_order_the_rows_by={"enum": ["name", "total", "created"]},
            whether_the_order_is_descending={"type": "boolean"},
            greatest_number_of_rows=number(1, 100),
        ),
    ),
)
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
