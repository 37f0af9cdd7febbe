"""What services tell of themselves as server-sent events: messages as pydantic models."""

from pydantic import BaseModel, ConfigDict

from specpair.http_service.replies.event_bytes import event_bytes


class Told(BaseModel):
    """A message, or a part of one."""

    model_config = ConfigDict(frozen=True)


def told_event(message: BaseModel, name: str) -> bytes:
    """The bytes of the event of this name that has the message as its data."""
    return event_bytes(message.model_dump_json().encode(), name)
