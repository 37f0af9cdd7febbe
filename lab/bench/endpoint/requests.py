"""The bodies of requests: what a case, a prompt and a side say, in OpenAI's fields. Pure."""

from dataclasses import dataclass
from typing import Any, Literal

from lab.bench.cases.case import Case, Prompt

Json = dict[str, Any]
Api = Literal["chat", "completions"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What an endpoint takes, as `probing` found out.

    `model`: the name to ask for.
    `apis`: those that answered, with what the others said in `refusals`.
    `takes`: of the fields `ignore_eos` and `cache_salt`, those that it does not refuse.
    `cold`: further fields by which a prompt is read anew.
    `server`: what it tells of itself.
    """

    model: str
    apis: frozenset[Api]
    refusals: dict[str, str]
    takes: frozenset[str]
    cold: Json
    server: dict[str, str]


def body_of(
    case: Case,
    prompt: Prompt,
    abilities: Abilities,
    extra: Json,
    *,
    api: Api,
    text: str | None,
    answers: tuple[str, ...] = (),
    max_tokens: int,
    seed: int | None,
    salt: str = "",
) -> Json:
    """The body of a request.

    `extra`: of the side; it comes before all else.
    `text`: of a prompt that is one, at the length that is asked for.
    `answers`: those to the turns before.
    `salt`: requests with another one share nothing in the endpoint's cache.
    """
    said: Json = {"model": abilities.model}
    if api == "chat":
        said["messages"] = messages_of(case, prompt, text, answers)
    else:
        said["prompt"] = text
    said |= {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    said |= case.sampling.fields()
    if seed is not None:
        said["seed"] = seed
    if case.ignore_eos and "ignore_eos" in abilities.takes:
        said["ignore_eos"] = True
    if salt and "cache_salt" in abilities.takes:
        said["cache_salt"] = salt
    if case.cache == "cold" and prompt.turns is None:
        said |= abilities.cold
    return {**said, **case.body, **prompt.body, **extra}


def messages_of(case: Case, prompt: Prompt, text: str | None, answers: tuple[str, ...]) -> list[Json]:
    """The messages of a chat: of a conversation, those up to the turn after `answers`."""
    head = [{"role": "system", "content": case.system}] if case.system is not None else []
    if prompt.messages is not None:
        return [*head, *prompt.messages]
    if prompt.turns is None:
        return [*head, {"role": "user", "content": text}]
    found: list[Json] = [*head]
    for turn, answer in zip(prompt.turns, answers, strict=False):
        found += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*found, {"role": "user", "content": prompt.turns[len(answers)]}]
