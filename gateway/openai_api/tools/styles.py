"""Styles in which models write calls, and detection from a chat template."""

import re
from dataclasses import dataclass
from enum import StrEnum

from gateway.openai_api.tools.gemma import Gemma
from gateway.openai_api.tools.json_objects import Generic, Hermes, Llama, Mistral
from gateway.openai_api.tools.pythonic import Pythonic
from gateway.openai_api.tools.qwen_xml import QwenXml
from gateway.openai_api.tools.reader import Notation
from specpair.http_service.options import SERVICE, NodeOptions
from specpair.options.option import AUTO, option


class Style(StrEnum):
    """Names of the styles."""

    HERMES = "hermes"
    QWEN_XML = "qwen-xml"
    LLAMA = "llama"
    MISTRAL = "mistral"
    MISTRAL_LIST = "mistral-list"
    GEMMA = "gemma"
    PYTHONIC = "pythonic"
    JSON = "json"


NOTATIONS: dict[Style, Notation] = {
    Style.HERMES: Hermes(),
    Style.QWEN_XML: QwenXml(),
    Style.LLAMA: Llama(),
    Style.MISTRAL: Mistral(as_list=False),
    Style.MISTRAL_LIST: Mistral(as_list=True),
    Style.GEMMA: Gemma(),
    Style.PYTHONIC: Pythonic(),
    Style.JSON: Generic(),
}

# What the templates of a style have, in the order in which they are tried.
_SIGNS = (
    (Style.GEMMA, r"<\|tool_call>call:"),
    (Style.MISTRAL, r"\[TOOL_CALLS\](?s:.*)\[ARGS\]"),
    (Style.MISTRAL_LIST, r"\[TOOL_CALLS\]"),
    (Style.QWEN_XML, r"<tool_call>(?s:.){,40}<function=(?s:.)*<parameter="),
    (Style.HERMES, r"<tool_call>(?s:.){,40}\{\\?\"name\\?\""),
    (Style.LLAMA, r"\{\"name\": function name, \"parameters\": "),
    (Style.PYTHONIC, r"<\|tool_call_start\|>\[|<\|tool_list_start\|>|List of tools: \[|\[func_name1\("),
)


def style_of(template: str | None) -> Style:
    """The style that a chat template shows. Without calls, or with calls of an unknown style: `JSON`."""
    return next((style for style, sign in _SIGNS if re.search(sign, template or "")), Style.JSON)


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
        f"how the model writes tool calls: {', '.join(Style)}; auto: as the chat template shows",
        check=style_named,
        group=SERVICE,
        placeholder="STYLE",
    )
    strict: bool = option(
        False, "refuse parameters without effect, which replies otherwise name in a header", group=SERVICE
    )
