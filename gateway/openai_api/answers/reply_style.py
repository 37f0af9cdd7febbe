"""What a chat template says of replies, for the commands about models."""

from gateway.openai_api.answers.answer import markers_of
from gateway.openai_api.tools.styles import Style, style_of
from models.commands.showing import ReplyStyle


def reply_style(template: str) -> ReplyStyle:
    """How the template has the model write calls of tools and thoughts."""
    style, markers = style_of(template), markers_of(template)
    return ReplyStyle(style.value, style is not Style.JSON, None if markers is None else (markers.begin, markers.end))
