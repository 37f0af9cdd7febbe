"""`AnswerOptions`: how a service reads answers, at both ends."""

from dataclasses import dataclass

from specpair.http_service.options.service_options import SERVICE, ServiceOptions
from specpair.openai_api.tools.styles import Style
from specpair.options.option import AUTO, option


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(ServiceOptions):
    """Settings of a service that answers. Flags, variables and keys of both ends are made from these fields."""

    tool_style: str = option(
        AUTO,
        "how the model writes calls of tools; auto: as its chat template shows",
        choices=(AUTO, *Style),
        group=SERVICE,
    )


def style_named(setting: str) -> Style | None:
    """The style that the setting `tool_style` names; None: that of the chat template."""
    return None if setting == AUTO else Style(setting)
