"""Reads the verifier's responses by the models of the protocol, and compares them with the requests.

Every function raises BadReply for what no verifier sends: one line with the address `where` and the first wrong field.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from drafter_client.errors import BadReply
from specpair.protocol import responses
from specpair.protocol.response_fields import Response
from specpair.protocol.service_responses import ModelInfo

STREAM = "/sessions/…/stream"  # in error texts, for every session
GenerateEvent = responses.GenerateOpenEvent | responses.GenerateTokensEvent | responses.GenerateResponse
_GENERATE: dict[str, type[GenerateEvent]] = {  # by the event's name
    "open": responses.GenerateOpenEvent,
    "end": responses.GenerateResponse,
}
_OBJECT = "should be an object"
_WORDS = {"missing": "is missing", "model_type": _OBJECT, "dataclass_type": _OBJECT}  # instead of pydantic's
R = TypeVar("R", bound=Response)


def broken_promise(where: str, wrong: str) -> BadReply:
    """The error for a response from the address `where` that no verifier sends; `wrong` says what is wrong with it."""
    return BadReply(f"{where}: {wrong}: is it a verifier?")


def lacks(url: str, path: str, error: Exception, advice: str) -> BadReply:
    """The error for a server at `url` that lacks a path and replied `error`. `advice`: what to do."""
    return BadReply(f"what answers at {url} has no {path.partition('?')[0]} ({error}): {advice}")


def read(where: str, model: type[R], content: bytes) -> R:
    """Read a response. Keys that the model does not know are ignored.

    The JSON is parsed beforehand: `model_validate_json` would copy all of a hostile response for each missing field.
    """
    try:
        return model.model_validate(from_json(content), by_alias=True, by_name=False)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    except ValueError:
        raise broken_promise(where, "the response is not JSON") from None
    wrong = _WORDS.get(fault["type"]) or fault["msg"].removeprefix("Input ").removeprefix("String ")
    raise broken_promise(where, f"{'.'.join(map(str, fault['loc'])) or 'the response'} {wrong}")


def expect(where: str, field: str, value: int, due: int) -> None:
    if value != due:
        raise broken_promise(where, f"{field} is {value}, expected {due}")


def read_model(where: str, content: bytes, below: int | None = None) -> ModelInfo:
    """`below`: the ids below it are those whose fingerprints were requested; None: those of all ids were."""
    info = read(where, ModelInfo, content)
    vocabulary = info.vocabulary
    if below is not None:
        expect(where, "vocabulary.below", vocabulary.below, below)
    ids = (*vocabulary.ends, vocabulary.begin or 0)
    if vocabulary.below > vocabulary.size or min(ids) < 0 or max(ids) >= vocabulary.size:
        raise broken_promise(where, f"vocabulary has {vocabulary.size} ids, but names others")
    return info


def read_prefill(
    where: str, content: bytes, prompt_ids: list[int], known: Sequence[int], prefix: int = 0
) -> responses.PrefillResponse:
    """`prompt_ids`, without the first `prefix` ones, and the `known` generated tokens are those of the request. The
    response begins right after them."""
    opened = read(where, responses.PrefillResponse, content)
    if opened.prompt_ids != prompt_ids[prefix:]:
        raise broken_promise(where, "prompt_ids differs from the request")
    expect(where, "position", opened.position, len(prompt_ids) + len(known))
    if not opened.tokens and not (known and opened.finish_reason):
        raise broken_promise(where, "tokens is empty")
    return opened


def read_verify(where: str, content: bytes, position: int, drafts: int) -> responses.VerifyResponse:
    """`position`, and `drafts`, the number of draft tokens, are those of the request."""
    response = read(where, responses.VerifyResponse, content)
    expect(where, "position", response.position, position)
    if not response.tokens and response.finish_reason is None:
        raise broken_promise(where, "tokens is empty, but the text has not ended")
    for name, value, most in (
        ("accepted_prefix_len", response.accepted, min(drafts, len(response.tokens))),
        ("judged", response.judged, drafts),
        ("unjudged", response.unjudged, drafts),
    ):
        if value > most:
            raise broken_promise(where, f"{name} is {value}, not 0 to {most}")
    if response.accepted_path is not None and len(response.accepted_path) != response.accepted:
        raise broken_promise(
            where, f"accepted_path has not as many indices as accepted_prefix_len, {response.accepted}"
        )
    return response


def read_event(where: str, name: str, data: bytes, due: int) -> responses.StreamedTokens | responses.StreamEnd:
    """An event of a session's stream. `due`: the position after the tokens of the events before."""
    if name == "end":
        end = read(where, responses.StreamEnd, data)
        expect(where, "total_tokens", end.total_tokens, due)
        return end
    event = read(where, responses.StreamedTokens, data)
    expect(where, "position", event.position, due)
    if not event.tokens:
        raise broken_promise(where, "tokens is empty")
    return event


def read_generated(where: str, name: str, data: bytes) -> GenerateEvent:
    return read(where, _GENERATE.get(name, responses.GenerateTokensEvent), data)
