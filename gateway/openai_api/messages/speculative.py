"""What a request says of speculation in its texts."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.openai_api.messages.objects import Object

Mode = Literal["off", "auto", "remote", "fused"]


class Speculative(Object):
    """Who drafts, and how much. The text is the same whoever does."""

    mode: Annotated[
        Mode | None,
        Field(
            description="off: nobody, the target decodes alone; remote: the machine of `drafter serve`; fused: the "
            "verifier; auto: the fastest of these that can be had. Default: as the service was started."
        ),
    ] = None
    draft_n: Annotated[
        int | None,
        Field(
            ge=0,
            description="Draft tokens in a request to the target, in mode remote behind those that are under way. "
            "Default: chosen for speed.",
        ),
    ] = None

    @model_validator(mode="after")
    def _drafts(self) -> "Speculative":
        if self.mode == "off" and self.draft_n is not None:
            raise ValueError("draft_n: nothing is drafted in mode off, leave one of the two out")
        return self
