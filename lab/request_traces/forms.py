"""The forms of traces: what marks each, and how one of its rows is read. Readers raise what a bad value raises."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from lab.request_traces.request import TracedRequest

Row = Mapping[str, Any]


class Form(NamedTuple):
    """A form.

    `keys`: columns or keys that a trace of this form has.
    `read`: the request of a row. None: the row is no request that was served.
    """

    keys: tuple[str, ...]
    read: Callable[[Row], TracedRequest | None]


def form_of(keys: Mapping[str, Any], forms: Mapping[str, Form]) -> Form | None:
    """The form whose keys are all there, or None."""
    return next((form for form in forms.values() if all(key in keys for key in form.keys)), None)


def _azure(row: Row) -> TracedRequest:
    """`TIMESTAMP`: date and time, with up to seven decimals of a second."""
    return TracedRequest(_moment(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(row: Row) -> TracedRequest | None:
    """`Timestamp` in seconds; newer files have `Session ID`, too. A request without a response failed."""
    response = int(row["Response tokens"])
    if response == 0:
        return None
    session = str(row.get("Session ID") or "")
    return TracedRequest(float(row["Timestamp"]), int(row["Request tokens"]), response, session)


def _mooncake(row: Row) -> TracedRequest:
    """`timestamp` in milliseconds."""
    return TracedRequest(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]))


def _dsd_sim(row: Row) -> TracedRequest:
    """`arrival_ms` in milliseconds; a drafter's requests, of `draft_id`, are taken for a session."""
    session, tenant = str(row.get("draft_id") or ""), str(row.get("slo_class") or "")
    prompt, target = int(row["prompt_tokens"]), int(row["target_tokens"])
    return TracedRequest(float(row["arrival_ms"]) / 1000, prompt, target, session, tenant)


def _ours(row: Row) -> TracedRequest:
    """The fields of `TracedRequest`."""
    session, tenant = str(row.get("session") or ""), str(row.get("tenant") or "")
    return TracedRequest(float(row["seconds"]), int(row["input_tokens"]), int(row["output_tokens"]), session, tenant)


def _verifier_log(row: Row) -> TracedRequest | None:
    """The line of a text's end, with `--log-format json`: the text began as long before as its tokens took."""
    if row["logger"] != "specpair.texts" or not row["tokens_per_second"]:
        return None
    generated = int(row["generated_tokens"])
    began = _moment(row["time"]) - generated / float(row["tokens_per_second"])
    return TracedRequest(began, int(row["prompt_tokens"]), generated, str(row.get("session_id") or ""))


def _moment(text: str) -> float:
    """Seconds since 1970 of a date and time; without a zone it is taken for UTC."""
    whole, _, decimals = text.strip().partition(".")
    digits = decimals[: len(decimals) - len(decimals.lstrip("0123456789"))]
    begun = datetime.fromisoformat(whole + decimals[len(digits) :])
    return (begun if begun.tzinfo else begun.replace(tzinfo=UTC)).timestamp() + float(f"0.{digits or 0}")


OF_CSV = {
    "Azure's": Form(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure),
    "BurstGPT's": Form(("Timestamp", "Request tokens", "Response tokens"), _burstgpt),
}
OF_JSON_LINES = {
    "Mooncake's": Form(("timestamp", "input_length", "output_length"), _mooncake),
    "DSD-Sim's": Form(("arrival_ms", "prompt_tokens", "target_tokens"), _dsd_sim),
    "a verifier's log": Form(("time", "logger"), _verifier_log),
    "ours": Form(("seconds", "input_tokens", "output_tokens"), _ours),
}


def listed(forms: Mapping[str, Form]) -> str:
    """The forms with their keys, for errors."""
    return "; ".join(f"{', '.join(form.keys)} ({name})" for name, form in forms.items())
