"""Parameters by which requests control thoughts, in the spellings of several providers, and the variables of the chat
template that they become. One that the template has no variable for is a hint."""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gateway.openai_api.messages.fields import OF_THE_TEMPLATE, taken, why_refused
from gateway.openai_api.messages.objects import Object
from specpair.http_service.hints import take_hint

_SWITCHES, _BUDGET = ("enable_thinking", "thinking"), "thinking_budget"
# Variables of chat templates, by the type of the value.
_VARIABLES: dict[type, tuple[str, ...]] = {
    bool: _SWITCHES,
    str: ("reasoning_effort", "thinking_effort"),
    int: (_BUDGET,),
}
_NONE = ("none", "off", "disabled")  # efforts, in several providers' words
_UNKNOWN = "the chat template of this model does not know it, leave it out"
_Effort = Annotated[str | None, Field(max_length=32, description="A variable of the chat template; none: no thoughts.")]
_Most = Annotated[
    int | None, Field(ge=-1, description="A variable of the chat template: tokens of thoughts. -1: no limit.")
]


class Thinking(Object):
    """Whether the model thinks before it answers, if its chat template supports that."""

    type: Literal["adaptive", "auto", "disabled", "enabled"] | None = Field(
        None,
        description="adaptive and auto: as the model does by itself; the others are `enable_thinking` or `thinking` of "
        "the chat template, where it has such a variable.",
    )
    budget_tokens: _Most = None
    effort: _Effort = None

    @property
    def switch(self) -> bool | None:
        """Whether the model thinks; None: as it does by itself."""
        return {"enabled": True, "disabled": False}.get(self.type or "")


def _object(given: Any) -> Any:
    """An object for a switch or an effort alone, as Ollama and DeepSeek name them."""
    if isinstance(given, bool):
        return {"type": "enabled" if given else "disabled"}
    return {"effort": given} if isinstance(given, str) else given


def _options(given: Any) -> Any:
    """An object for a switch or an effort alone; empty values ask for nothing."""
    return {"enabled": given} if isinstance(given, bool) else _object(given) or None


class UsualEffort(str):
    """An effort that asks for nothing, so that a chat template need not know it."""


class ReasoningOptions(Object):
    """How much the model thinks."""

    effort: _Effort = None
    max_tokens: _Most = None
    enabled: bool | None = Field(None, description="`enable_thinking` or `thinking` of the chat template.")
    exclude: bool | None = Field(None, description="Whether thoughts are left out of the reply.")


class ThinkingFields(Object):
    """Base of requests that may control thoughts."""

    enable_thinking: bool | None = Field(None, description="A variable of the chat template, also named `thinking`.")
    thinking: Annotated[
        Thinking | None, BeforeValidator(_object), Field(description="An object, or a switch alone.")
    ] = None
    think: Annotated[Thinking | None, BeforeValidator(_object), Field(description="Ollama's name of `thinking`.")] = (
        None
    )
    thinking_budget: _Most = None
    reasoning: Annotated[
        ReasoningOptions | None, BeforeValidator(_options), Field(description="How much the model thinks.")
    ] = None
    reasoning_effort: _Effort = None
    include_reasoning: bool | None = Field(None, description="False: thoughts are left out of the reply.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further variables of the chat template.")

    @model_validator(mode="after")
    def _agree(self) -> "ThinkingFields":
        for name, value in (self.chat_template_kwargs or {}).items():
            if name in OF_THE_TEMPLATE.only and not taken(OF_THE_TEMPLATE, name, value):
                raise ValueError(f"chat_template_kwargs.{name}: {why_refused(OF_THE_TEMPLATE, name)}")
        said: dict[type, tuple[str, object]] = {}  # by kind, what was said first
        for path, value in self._wishes():
            for kind, each in ((type(value), value), *([(bool, False)] if _off(value) else [])):
                first, before = said.setdefault(kind, (path, each))
                if before != each:
                    raise ValueError(f"{path}: it says something else than {first}: give one of them")
        return self

    @property
    def shows_thoughts(self) -> bool:
        """Whether thoughts are in the reply."""
        return self.include_reasoning is not False and not (self.reasoning and self.reasoning.exclude)

    def thinking_variables(self, known: Collection[str]) -> dict[str, Any]:
        """Variables for a chat template, which has those that are `known`. Others are hints.

        Raises InvalidRequest for a hint with `--strict`.
        """
        given = self.chat_template_kwargs or {}
        made = {name: value for name, value in given.items() if name in known and name not in OF_THE_TEMPLATE.only}
        for name, value in given.items():
            used = name in known or _use(made, value, _kind(name), known)
            if not used and name not in OF_THE_TEMPLATE.only and not isinstance(value, UsualEffort):
                take_hint(f"chat_template_kwargs.{name}", _UNKNOWN)
        for path, value in self._wishes():
            if not _use(made, value, type(value), known):
                take_hint(path, _UNKNOWN)
            elif any(made[name] != value for name in _VARIABLES[type(value)] if name in made):
                take_hint(path, "chat_template_kwargs says something else, which counts: leave one of them out")
        return made

    def _wishes(self) -> Iterator[tuple[str, bool | str | int]]:
        """What is asked for, by its path."""
        thinking, reasoning = self.thinking or Thinking(), self.reasoning or ReasoningOptions()
        think = self.think or Thinking()
        wishes = {
            "enable_thinking": self.enable_thinking,
            "thinking": thinking.effort or thinking.switch,
            "think": think.effort or think.switch,
            "think.budget_tokens": think.budget_tokens,
            "thinking.budget_tokens": thinking.budget_tokens,
            "thinking_budget": self.thinking_budget,
            "reasoning_effort": self.reasoning_effort,
            "reasoning.effort": reasoning.effort,
            "reasoning.max_tokens": reasoning.max_tokens,
            "reasoning.enabled": reasoning.enabled,
        }
        for path, value in wishes.items():
            if value not in (None, "", -1):
                yield path, "none" if value in _NONE else value


def _kind(variable: str) -> type | None:
    return next((kind for kind, names in _VARIABLES.items() if variable in names), None)


def _off(value: object) -> bool:
    return value in (False, "none")  # 0 is False, too


def _use(made: dict[str, Any], value: Any, kind: type | None, known: Collection[str]) -> bool:
    """Add the variables of a wish to those made, which stay. Returns whether the template has one for it."""
    if kind is None or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return False
    found = {name: value for name in _VARIABLES[kind] if name in known}
    if _off(value):
        off = dict.fromkeys(_SWITCHES, False) | {_BUDGET: 0}
        found = {name: each for name, each in off.items() if name in known} | found
    for name, each in found.items():
        made.setdefault(name, each)
    return bool(found) or (value is True and _BUDGET in known)


def thinking_of(request: ThinkingFields) -> dict[str, Any]:
    """The fields of a request that control thoughts, for a chat."""
    return {name: getattr(request, name) for name in ThinkingFields.model_fields}
