"""What a model's text holds: content, and calls of tools as they grow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text beside calls. It is never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call of one of the given tools. `index`: calls of a text are counted from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsGrew:
    """The next piece of the arguments. All pieces of a call that is whole are the JSON text of an object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The last event of a call. `whole`: false if the text broke off, or was no call from there on."""

    index: int
    whole: bool = True


Event = Content | CallBegan | ArgumentsGrew | CallEnded
