"""`AnswerOptions`: how a service reads answers, at both ends."""

from dataclasses import dataclass

from gateway.openai_api.tools.styles import Style
from specpair.http_service.options import SERVICE, NodeOptions
from specpair.options.option import AUTO, option


def style_named(setting: str) -> Style | None:
    """The style that the setting `tool_style` names; None: that of the chat template. Raises ValueError."""
    if setting not in (AUTO, *Style):
        raise ValueError(f"is no style: choose one of {', '.join((AUTO, *Style))}")
    return None if setting == AUTO else Style(setting)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(NodeOptions):
    """Settings of a service that answers. Flags, variables and keys of both ends are made from these fields."""

    tool_style: str = option(
        AUTO,
        f"how the model writes calls of tools: {', '.join(Style)}; auto: as its chat template shows",
        check=style_named,
        group=SERVICE,
        placeholder="STYLE",
    )
