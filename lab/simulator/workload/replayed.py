"""Workloads that were recorded: traces of requests, and conversations with all their turns."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab.request_traces.reading import in_order, requests
from lab.request_traces.request import BadTrace, TracedRequest
from lab.simulator.workload.conversation import Conversation, Turn


@dataclass(frozen=True, slots=True)
class Replayed:
    """Each request of a trace is a conversation of one turn, at its recorded time after the first.

    `path`: a file in a form that `lab.request_traces` reads.
    `speed`: how many times faster than recorded.
    `repeat`: whether it begins anew behind its end, without end; the mean gap lies between.
    """

    path: Path
    speed: float = 1.0
    repeat: bool = False

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        """Raises BadTrace for a file that is no trace, or that cannot be read."""
        number, offset = 0, 0.0
        while True:
            first, last, begun = None, 0.0, number
            for request in recorded(self.path):
                first = request.seconds if first is None else first
                last = offset + request.seconds - first
                turn = Turn(max(1, request.input_tokens), max(1, request.output_tokens))
                name = f"{request.session or 'request'}-{number}"
                yield Conversation(name, last / self.speed, (turn,), request.tenant)
                number += 1
            gap = (last - offset) / max(1, number - begun - 1)
            offset = last + (gap or 1.0)  # else a trace of one moment would repeat in that moment without end
            if not self.repeat:
                return


@dataclass(frozen=True, slots=True)
class RecordedConversations:
    """Conversations from JSON Lines, as `write` makes them: each line has the fields of a `Conversation`."""

    path: Path

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        """Raises BadTrace for a line that is no conversation, or that starts before the one above it."""
        last = 0.0
        for number, line in _lines(self.path):
            try:
                found = _CONVERSATION.validate_json(line, strict=False)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                at = ".".join(map(str, first["loc"]))
                raise BadTrace(f"{self.path}, line {number}: {at}: {first['msg']}") from None
            if not found.turns:
                raise BadTrace(f"{self.path}, line {number}: turns: a conversation has at least one")
            if found.start < last:
                raise BadTrace(f"{self.path}, line {number}: start: {found.start} is before the line above, {last}")
            last = found.start
            yield found


def write(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Lines of JSON that `RecordedConversations` reads, each with its line end."""
    return (_CONVERSATION.dump_json(each).decode() + "\n" for each in conversations)


def recorded(path: Path) -> Iterator[TracedRequest]:
    """The requests of a trace by their times. Raises BadTrace."""
    return in_order(requests((line for _, line in _lines(path)), str(path)), str(path))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from zip(count(1), file)
    except OSError as error:
        raise BadTrace(f"the trace {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadTrace(f"the trace {path} is not UTF-8 text") from None


_CONVERSATION = TypeAdapter(Conversation)
