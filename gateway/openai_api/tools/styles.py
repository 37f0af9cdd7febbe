"""Styles in which models write calls, and detection from a chat template."""

import re
from dataclasses import dataclass
from enum import StrEnum

from gateway.openai_api.tools.gemma import Gemma
from gateway.openai_api.tools.json_objects import Generic, Hermes, Llama, Mistral
from gateway.openai_api.tools.marked import Marked
from gateway.openai_api.tools.pythonic import Lines, Pythonic
from gateway.openai_api.tools.reader import Notation, Parameters, Writing
from gateway.openai_api.tools.tagged import Tagged
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
    HARMONY = "harmony"
    GLM = "glm"
    GLM_COMPACT = "glm-compact"
    DEEPSEEK_V3 = "deepseek-v3"
    DEEPSEEK_V31 = "deepseek-v3.1"
    DEEPSEEK_V32 = "deepseek-v3.2"
    DEEPSEEK_V4 = "deepseek-v4"
    DEEPSEEK_V41 = "deepseek-v4.1"
    KIMI = "kimi"
    MINIMAX = "minimax"
    SEED = "seed"
    OLMO = "olmo"
    JSON = "json"


def _functions(marker: str) -> Writing:
    """A function with parameters by name, as Qwen3-Coder and Seed-OSS write it between markers with this name."""
    lines = "\n" if marker == "tool_call" else ""
    return Writing(
        begin=f"<{marker}>\n<function=",
        middle=">\n",
        end=f"</function>\n</{marker}>",
        between="\n",
        arguments=Parameters(begin="<parameter=", middle=f">{lines}", end=f"{lines}</parameter>\n"),
        trigger=f"<{marker}>",
        tokens=(f"<{marker}>", f"</{marker}>"),
    )


def _glm(line: str) -> Writing:
    """`line`: what stands between the tags."""
    return Writing(
        begin="<tool_call>",
        middle=line,
        end="</tool_call>",
        between=line,
        arguments=Parameters(begin="<arg_key>", middle=f"</arg_key>{line}<arg_value>", end=f"</arg_value>{line}"),
        trigger="<tool_call>",
        tokens=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    )


def _invoked(name: str, calls: str, parameter: str, other: str | None = None) -> Writing:
    """A call as `invoke`, as MiniMax and DeepSeek write it. `name`: what tags begin with. `parameter`: behind its key.

    `calls`: the tag around all calls. `other`: `parameter` where the value is no string.
    """
    return Writing(
        before=f"<{calls}>\n",
        begin=f'<{name}invoke name="',
        middle='">\n',
        end=f"</{name}invoke>",
        between="\n",
        after=f"\n</{calls}>",
        arguments=Parameters(f'<{name}parameter name="', parameter, f"</{name}parameter>\n", other),
        trigger=f"<{calls}>",
        tokens=(name.strip(),) if name else (f"<{calls}>", f"</{calls}>"),
    )


def _dsml(calls: str, space: str = "") -> Writing:
    return _invoked(_DSML + space, _DSML + space + calls, '" string="true">', '" string="false">')


_DSML = "｜DSML｜"  # noqa: RUF001 - DeepSeek's bars
_DEEPSEEK = tuple(f"<｜tool▁{each}｜>" for each in ("calls▁begin", "calls▁end", "call▁begin", "sep", "call▁end"))  # noqa: RUF001
_KIMI = tuple(
    f"<|tool_call{each}|>" for each in ("s_section_begin", "s_section_end", "_begin", "_argument_begin", "_end")
)


def _sections(
    tokens: tuple[str, ...], name: str = "", fence: tuple[str, str] = ("", ""), *, number: bool = False
) -> Writing:
    """Calls in a section, each a name and JSON between `tokens`. `name`: before the name. `fence`: around the JSON."""
    return Writing(
        before=tokens[0],
        begin=tokens[2] + name,
        middle=fence[0] or tokens[3],
        end=fence[1] + tokens[4],
        between="",
        after=tokens[1],
        trigger=tokens[0],
        tokens=tokens,
        number=number,
    )


_HARMONY = Writing(  # behind the prompt's `<|start|>assistant`; a token `<|call|>` ends the text
    begin="<|channel|>commentary to=functions.",
    middle=" <|constrain|>json<|message|>",
    end="",
    between="",
    tokens=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
    several=False,
)


NOTATIONS: dict[Style, Notation] = {
    Style.HERMES: Hermes(),
    Style.QWEN_XML: Tagged(_functions("tool_call")),
    Style.LLAMA: Llama(),
    Style.MISTRAL: Mistral(as_list=False),
    Style.MISTRAL_LIST: Mistral(as_list=True),
    Style.GEMMA: Gemma(),
    Style.PYTHONIC: Pythonic(),
    Style.HARMONY: Marked(_HARMONY),
    Style.GLM: Tagged(_glm("\n")),
    Style.GLM_COMPACT: Tagged(_glm("")),
    Style.DEEPSEEK_V3: Marked(_sections(_DEEPSEEK, f"function{_DEEPSEEK[3]}", ("\n```json\n", "\n```"))),
    Style.DEEPSEEK_V31: Marked(_sections(_DEEPSEEK)),
    Style.DEEPSEEK_V32: Tagged(_dsml("function_calls")),
    Style.DEEPSEEK_V4: Tagged(_dsml("tool_calls")),
    Style.DEEPSEEK_V41: Tagged(_dsml("calls", " ")),
    Style.KIMI: Marked(_sections(_KIMI, "functions.", number=True)),
    Style.MINIMAX: Tagged(_invoked("", "minimax:tool_call", '">')),
    Style.SEED: Tagged(_functions("seed:tool_call")),
    Style.OLMO: Lines(),
    Style.JSON: Generic(),
}

# What the templates of a style have, in the order in which they are tried.
_SIGNS = (
    (Style.HARMONY, r"<\|channel\|>(?s:.*)<\|message\|>"),
    (Style.DEEPSEEK_V32, rf"{_DSML}(?s:.*)function_calls>"),
    (Style.DEEPSEEK_V41, rf"{_DSML}(?s:.)* calls>"),
    (Style.DEEPSEEK_V4, _DSML),
    (Style.DEEPSEEK_V3, rf"{_DEEPSEEK[3]}(?s:.){{,80}}```json"),
    (Style.DEEPSEEK_V31, _DEEPSEEK[0]),
    (Style.KIMI, r"<\|tool_calls_section_begin\|>"),
    (Style.MINIMAX, "<minimax:tool_call>"),
    (Style.SEED, "<seed:tool_call>"),
    (Style.GLM_COMPACT, "</arg_key><arg_value>"),
    (Style.GLM, "<arg_key>"),
    (Style.OLMO, "<function_calls>"),
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
    keep_lines: bool = option(
        False,
        "keep lines on top of agents' system prompts that change with each request, such as x-anthropic-billing-header",
        group=SERVICE,
    )
