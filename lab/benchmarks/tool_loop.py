"""A conversation that calls tools: whether the right ones are called, and how soon each turn begins.

Method. A verifier process serves the target and the draft model for mode fused. OpenAI's own client asks its chat
endpoint, streamed, with the three tools below and a question in each of `--turns` turns; a call is answered by the
tool's result, and the answer to that, which may not call again, ends the turn. A turn is right if the expected tool is
called with arguments that are valid under its schema and name what the question names. The time to the first token of
each request is beside that of the same request read cold, with a salt of its own, right after it. `--choice required`
lets the grammar make every call valid; with `auto` the model decides whether to call. `--rules` lengthen the system
message by so many lines of some 22 tokens, as the prompts of agents have 2,000 tokens and more. All settings are the
service's own defaults, at temperature 0.

    python -m lab.benchmarks.tool_loop --target TARGET.gguf --draft DRAFT.gguf [--choice required] [--rules 70]
"""

import json
import secrets
import time
from statistics import median
from typing import Any, NamedTuple

import openai

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import connected
from specpair.child_processes.serving import verifier
from tests.real_models.conversation import SYSTEM, TOOLS, TURNS

FLAGS = {
    "target": {"required": True, "help": "GGUF file with a chat template that has tools"},
    "draft": {"required": True, "help": "GGUF file of the draft model"},
    "turns": 6,
    "rules": 0,
    "choice": {"default": "auto", "choices": ("auto", "required")},
}


class _Reply(NamedTuple):
    text: str
    calls: list[dict[str, Any]]
    first: float  # seconds until the first token


def main() -> None:
    options = options_of(__doc__, FLAGS, "jsonschema_rs", "openai")
    report = Report("tool_loop", options)
    messages: list[dict[str, Any]] = [{"role": "system", "content": _system(options.rules)}]
    warm, cold, right = list[float](), list[float](), 0
    with verifier(model=options.target, draft_model=options.draft, slots=4) as server, connected(server.url):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=600)
        _asked(client, [{"role": "user", "content": "Hello"}], options.choice)  # what is read once
        for turn in TURNS[: options.turns]:
            messages.append({"role": "user", "content": turn.question})
            reply = _both(client, messages, options.choice, warm, cold)
            verdict = turn.fault([(call["name"], json.loads(call["arguments"])) for call in reply.calls])
            right += verdict is None
            said = ", ".join(f"{call['name']}({call['arguments']})" for call in reply.calls) or repr(reply.text[:60])
            report.line(f"{turn.question}\n    {said}{'' if verdict is None else f'   WRONG: {verdict}'}")
            calls = [{"id": call["id"], "type": "function", "function": _function(call)} for call in reply.calls]
            messages.append(
                {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
            )
            if calls:
                messages += [{"role": "tool", "tool_call_id": call["id"], "content": turn.result} for call in calls]
                answer = _both(client, messages, "none", warm, cold)
                messages.append({"role": "assistant", "content": answer.text})
    pairs = list(zip(warm, cold, strict=True))[1:]
    report.line(
        f"{right} of {options.turns} right",
        "time to the first token after the first request, warm over cold: "
        f"median {median(w / c for w, c in pairs):.2f}, greatest {max(w / c for w, c in pairs):.2f}; "
        + ", ".join(f"{1e3 * w:.0f} / {1e3 * c:.0f} ms" for w, c in pairs),
    )
    report.save()


def _system(rules: int) -> str:
    lines = (
        f"Rule {n}: of {n} cities that a traveller names at once, answer for number {n} last." for n in range(rules)
    )
    return "\n".join([SYSTEM, *lines])


def _both(client: openai.OpenAI, messages: Any, choice: str, warm: list[float], cold: list[float]) -> _Reply:
    """The reply to a request, whose time is noted beside that of the same request read cold."""
    reply = _asked(client, messages, choice)
    warm.append(reply.first)
    cold.append(_asked(client, messages, choice, max_tokens=1, cache_salt=secrets.token_hex(8)).first)
    return reply


def _asked(client: openai.OpenAI, messages: Any, choice: str, max_tokens: int = 120, **more: Any) -> _Reply:
    began, first = time.perf_counter(), 0.0
    text, calls = "", list[dict[str, Any]]()
    tools: Any = TOOLS
    stream: Any = client.chat.completions.create(
        model="",
        messages=messages,
        tools=tools,
        tool_choice=choice,  # type: ignore[call-overload]
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=max_tokens,
        stream=True,
        extra_body=more,
    )
    for chunk in stream:
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta is None or not (delta.content or delta.tool_calls or chunk.choices[0].finish_reason):
            continue
        first = first or time.perf_counter() - began
        text += delta.content or ""
        for each in delta.tool_calls or ():
            if each.id:
                calls.append({"id": each.id, "name": each.function.name, "arguments": ""})
            calls[-1]["arguments"] += each.function.arguments or ""
    return _Reply(text, calls, first)


def _function(call: dict[str, Any]) -> dict[str, str]:
    return {"name": call["name"], "arguments": call["arguments"]}


if __name__ == "__main__":
    main()
