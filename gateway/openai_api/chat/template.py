"""Renders untrusted chat templates within limits of time, memory and size, and detects their forms.

Templates do not say whether they take arguments as an object or as text, contents as text, as parts or as null, or
which ids of calls. `Forms` tries small conversations, and converts messages to a form that the template shows."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json

from specpair.child_processes.worker import Unanswered, Worker
from specpair.http_service.hints import take_hint
from specpair.protocol.errors import InvalidRequest, NoChatTemplate
from specpair.protocol.terminal_text import one_line

TemplateMessage = dict[str, Any]  # `role` and `content`, and what else the template knows
# Renders a conversation, with tools if these are given; None: the template fails, or refuses it.
Attempt = Callable[[list[TemplateMessage], Sequence[TemplateMessage]], str | None]

_WORD, _KEY = "Zanzibar", "quokkas"  # of no template
_ID, _LONG_ID = "call00001", "call_of_more_than_nine"
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")  # the only ids that Mistral's templates take
_TOOL = {"name": "look", "description": "Looks", "parameters": {"type": "object", "properties": {}}}
_TOOLS: list[TemplateMessage] = [{"type": "function", "function": _TOOL}]
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names that programs and templates have for thoughts


class Forms:
    """The forms of messages that one template shows. Each is tried when it matters for the first time."""

    def __init__(self, attempt: Attempt) -> None:
        """`attempt`: renders the template."""
        self._attempt = attempt
        self._contents: dict[tuple[str, bool], bool] = {}  # by role, and whether in parts

    def fitted(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """The messages in forms that the template shows. Forms that it shows are not changed.

        The answer of a tool gets the name of its call, unless it has a name: clients of some APIs send none.
        """
        names: dict[str | None, str] = {}  # of the functions that were called, by the ids of the calls
        ids: dict[str | None, str] = {}  # those that say the names, as Kimi K2's template needs them
        fitted = []
        for at, message in enumerate(messages):
            for call in message.get("tool_calls") or ():
                names[call.get("id")] = name = call["function"]["name"]
                ids[call.get("id")] = f"functions.{name}:{len(ids)}"
            name = names.get(message.get("tool_call_id"))
            if message["role"] == "tool" and "name" not in message and name is not None:
                message = {**message, "name": name}
            fitted.append(self._with_ids(self._fitted(message, f"messages.{at}"), ids))
        return self._divided(fitted)

    def _divided(self, messages: list[TemplateMessage]) -> list[TemplateMessage]:
        """The messages, of which those with calls are divided where the template shows only a part of them: their text
        becomes a message before, and each call a message with its answer behind it."""
        divided: list[TemplateMessage] = []
        moved: set[int] = set()  # answers, by their positions
        for at, message in enumerate(messages):
            calls = message.get("tool_calls") or []
            bare = {"role": message["role"], "content": None if calls and self._calls[1] else ""}
            if calls and message["content"] and self._loses_text:
                divided.append(bare | {"content": message["content"]})
                message = message | bare
            if len(calls) > 1 and self._loses_calls:
                last = next((n for n in range(at + 1, len(messages)) if messages[n]["role"] != "tool"), len(messages))
                for call in calls:
                    own = [n for n in range(at + 1, last) if messages[n].get("tool_call_id") == call.get("id")]
                    divided += [message | {"tool_calls": [call]}, *(messages[n] for n in own)]
                    moved.update(own)
                    message = bare  # so that thoughts stand once
            elif at not in moved:
                divided.append(message)
        return divided

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template shows tools."""
        tools = [{"type": "function", "function": _TOOL | {"name": _WORD}}]
        user, system = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Help"}
        shown = (self._attempt([*map(self._fitted, said)], tools) for said in ([user], [system, user]))
        return any(text is not None and _WORD in text for text in shown)

    def _fitted(self, message: TemplateMessage, name: str = "") -> TemplateMessage:
        """`name`: of its parameter."""
        fitted = {**message, "content": self._content(message)}
        if calls := message.get("tool_calls"):
            fitted["tool_calls"] = [self._call(call, f"{name}.tool_calls.{at}") for at, call in enumerate(calls)]
        thoughts = next((message[name] for name in _REASONING if message.get(name) is not None), None)
        return fitted if thoughts is None else {"thinking": thoughts, **fitted, "reasoning_content": thoughts}

    def _content(self, message: TemplateMessage) -> Any:
        role, content = message["role"], message.get("content")
        if content is None:
            takes_null = self._calls[1] if message.get("tool_calls") else self._takes_null_alone
            return None if takes_null else ""
        if isinstance(content, str):
            in_parts = not self._shows(role, in_parts=False) and self._shows(role, in_parts=True)
            return [{"type": "text", "text": content}] if in_parts else content
        return content if self._shows(role, in_parts=True) else "".join(part["text"] for part in content)

    def _with_ids(self, message: TemplateMessage, names: Mapping[str | None, str]) -> TemplateMessage:
        """The message with ids of calls that the template takes: the same new ids for the same other ones.

        `names`: ids that say the names of functions, by the given ones.
        """
        calls, id = message.get("tool_calls") or (), message.get("tool_call_id")
        given = [id, *(call.get("id") for call in calls)]
        new = _short
        if given != [None] and self._shows_ids_for_names:
            new = lambda id: names.get(id, id)  # noqa: E731
        elif all(each is None or _SHORT_ID.fullmatch(each) for each in given) or not self._demands_short_ids:
            return message
        changed: TemplateMessage = {} if id is None else {"tool_call_id": new(id)}
        if calls:
            changed["tool_calls"] = [{**call, "id": new(call.get("id") or "")} for call in calls]
        return message | changed

    def _call(self, call: TemplateMessage, name: str) -> TemplateMessage:
        function = call["function"]
        given, wanted = function.get("arguments"), self._calls[0]
        if given in (None, ""):  # a call without arguments, as some providers write it
            given = {}
        if wanted is dict and not isinstance(given, dict):
            given = self._object(given, f"{name}.function.arguments")
        elif wanted is str and not isinstance(given, str):
            given = json.dumps(given, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": given}}

    def _object(self, given: Any, name: str) -> Any:
        """The object in the text of arguments. A model may have written other text: it stays, if the template shows
        text, too. Otherwise the members remain that can be read of it, and the parameter is a hint. `name`: its own."""
        try:
            found = json.loads(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            found = given
        if isinstance(found, dict | None):
            return found or {}
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        if self._shows_text_as_arguments:
            return text
        take_hint(name, "the chat template of this model takes an object of JSON only: send one")
        return _members(text)

    def _shows(self, role: str, *, in_parts: bool) -> bool:
        """Whether the template shows a content of this role as text, or in parts."""
        if (role, in_parts) not in self._contents:
            part = {"type": "text", "text": _WORD, _KEY: _KEY}  # with the key, it has written a list as it is
            self._contents[role, in_parts] = False  # for the attempt itself
            text = self._attempt(self._around({"role": role, "content": [part] if in_parts else _WORD}), [])
            self._contents[role, in_parts] = text is not None and _WORD in text and _KEY not in text
        return self._contents[role, in_parts]

    @cached_property
    def _takes_null_alone(self) -> bool:
        """Whether the content of an assistant without calls may be null."""
        null, empty = (self._attempt(self._around({"role": "assistant", "content": each}), []) for each in (None, ""))
        return _takes_null(null, empty)

    @cached_property
    def _calls(self) -> tuple[type, bool]:
        """The type of arguments that the template shows (object: any), and whether the content beside may be null."""
        as_text = json.dumps({_KEY: _WORD})
        null = empty = None
        for arguments, shown in (({_KEY: _WORD}, _WORD), (as_text, as_text)):
            null, empty = (self._tried(_calling(arguments, content)) for content in (None, ""))
            # With quotation marks of Python, it has written an object as it is.
            shows = [text is not None and shown in text and f"'{_KEY}'" not in text for text in (null, empty)]
            if any(shows):
                return type(arguments), shows[0] and (not shows[1] or _takes_null(null, empty))
        return object, _takes_null(null, empty)

    @cached_property
    def _shows_text_as_arguments(self) -> bool:
        """Whether a template that shows an object of arguments shows a text in its place."""
        text = self._tried(_calling(_WORD, None if self._calls[1] else ""))
        return text is not None and _WORD in text

    @cached_property
    def _demands_short_ids(self) -> bool:
        """Whether the template refuses ids of calls but those of nine letters and digits."""
        short, long = (self._tried(self._fitted(_calling({"a": "b"}, None, id))) for id in (_ID, _LONG_ID))
        return short is not None and long is None

    @cached_property
    def _shows_ids_for_names(self) -> bool:
        """Whether the template shows the id of a call, and not the name of its function."""
        message = self._fitted(_calling({"a": "b"}, None, _LONG_ID))
        message["tool_calls"][0]["function"]["name"] = _WORD
        text = self._tried(message)
        return text is not None and _WORD not in text and _LONG_ID in text

    @cached_property
    def _loses_text(self) -> bool:
        """Whether the template refuses or hides text beside thoughts and a call, and shows it in a message before."""
        message = self._fitted(_calling({"a": "b"}, _WORD) | {"reasoning_content": "Hm"})
        text = self._tried(message)
        if text is not None and _WORD in text:
            return False
        user, *others = self._around(message | {"content": ""})
        text = self._attempt([user, self._fitted({"role": "assistant", "content": _WORD}), *others], _TOOLS)
        return text is not None and _WORD in text

    @cached_property
    def _loses_calls(self) -> bool:
        """Whether the template refuses or hides the second call of a message, and shows it in one of its own."""
        first, second = (
            self._fitted(_calling({"a": word}, None, f"{_ID[:-1]}{at}")) for at, word in enumerate((_KEY, _WORD))
        )
        user, both, answer, *others = self._around(first | {"tool_calls": first["tool_calls"] + second["tool_calls"]})
        later = answer | {"tool_call_id": second["tool_calls"][0]["id"]}
        together = self._attempt([user, both, answer, later, *others], _TOOLS)
        if together is not None and (_WORD in together or _KEY not in together):
            return False
        apart = self._attempt([user, first, answer, second, later, *others], _TOOLS)
        return apart is not None and _WORD in apart

    def _tried(self, call: TemplateMessage) -> str | None:
        """A conversation with this call as it is, rendered, with tools: some templates need them for calls."""
        return self._attempt(self._around(call), _TOOLS)

    def _around(self, message: TemplateMessage) -> list[TemplateMessage]:
        """A conversation with this message as it is, and others in forms that the template shows."""
        role = message["role"]
        if role == "user":
            return [message]
        user = self._fitted({"role": "user", "content": "Hi"})
        if "tool_calls" in message:
            answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "name": "look", "content": "Done"}
            return [user, message, answer, self._fitted({"role": "assistant", "content": "Yes"}), user]
        if role == "tool":
            call = self._fitted(_calling({"a": "b"}, None))
            return [user, call, message | {"tool_call_id": _ID, "name": "look"}]
        return [*([user] if role == "assistant" else []), message, user]


def _calling(arguments: Any, content: str | None, id: str = _ID) -> TemplateMessage:
    function = {"name": "look", "arguments": arguments}
    call = {"id": id, "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def _takes_null(null: str | None, empty: str | None) -> bool:
    """Whether a template takes null as content, by its renderings of null and of empty content."""
    if null is None:
        return False
    return empty is None or null.count("None") <= empty.count("None")  # None is what Jinja writes for null


def _members(text: str) -> dict[str, Any]:
    """The members that can be read of a text which was to be a JSON object: a limit may have cut it."""
    try:
        found = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _short(id: str) -> str:
    """Nine letters and digits in place of an id that is something else."""
    return id if _SHORT_ID.fullmatch(id) else blake2b(id.encode(), digest_size=5).hexdigest()[:9]


MOST_TEMPLATE = 2**20  # characters; common templates have a few thousand
MOST_AROUND = 2**20  # characters that the result may have, beside four for each character of the variables
DEADLINE = 10.0  # seconds, including about 0.2 for the start of the child process
_CHILD = "gateway.openai_api.chat.template_child"


class Renderer:
    """Renders templates in a child process, which is kept for the next one. Thread-safe. Close it at the end."""

    def __init__(self) -> None:
        self._child = Worker(_CHILD)
        self._forms: dict[str, Forms] = {}  # of templates
        self._variables: dict[str, frozenset[str]] = {}  # of templates

    def close(self) -> None:
        """End the child process. A later `render` starts another one."""
        self._child.kill()

    def render(self, template: str, variables: dict[str, Any]) -> str:
        """Return a Jinja template rendered with `variables`. The child process is killed after `DEADLINE`.

        Raises NoChatTemplate if the template exceeds a limit or fails, and InvalidRequest if it refuses the messages.
        """
        answer = self._ask(template, variables)
        if "refused" in answer:
            raise InvalidRequest(
                f"messages: the chat template refuses them: {one_line(answer['refused'])}", param="messages"
            )
        if "error" in answer:
            raise _failed(one_line(answer["error"]))
        return _text(answer)

    def attempt(self, template: str, variables: dict[str, Any]) -> str | None:
        """Return the rendered template, or None if it fails or refuses. Raises NoChatTemplate if it exceeds a limit."""
        answer = self._ask(template, variables)
        return _text(answer) if "text" in answer else None

    def forms(self, template: str) -> Forms:
        """The forms that a template takes, tried at their first use; see `attempt` for the errors."""
        if template not in self._forms:
            base = {"add_generation_prompt": True, "bos_token": "", "eos_token": ""}

            def attempt(messages: list[TemplateMessage], tools: Sequence[TemplateMessage]) -> str | None:
                return self.attempt(template, base | {"messages": messages} | ({"tools": [*tools]} if tools else {}))

            self._forms = {template: Forms(attempt)}  # a service has one
        return self._forms[template]

    def variables(self, template: str) -> frozenset[str]:
        """The names of the variables that a template reads; none: it cannot be read."""
        if template not in self._variables:
            names = self._ask(template, None).get("names", ())
            self._variables = {template: frozenset(names)}  # a service has one
        return self._variables[template]

    def _ask(self, template: str, variables: dict[str, Any] | None) -> dict[str, Any]:
        """The child's answer. Raises NoChatTemplate if the template exceeds a limit of this process."""
        if len(template) > MOST_TEMPLATE:
            raise _failed(f"it has {len(template)} characters, at most {MOST_TEMPLATE} are taken")
        most = MOST_AROUND + 4 * len(json.dumps(variables))
        request = {"template": template, "variables": variables, "most": most}
        try:
            answer = self._child.ask(request, DEADLINE)
        except Unanswered as error:
            raise _failed(str(error)) from None
        if "exceeded" in answer:
            raise _failed(answer["exceeded"])
        return answer


def _text(answer: dict[str, str]) -> str:
    return answer["text"].encode(errors="replace").decode()  # a template can make half of a surrogate pair


def _failed(why: str) -> NoChatTemplate:
    return NoChatTemplate(f"the target's chat template cannot be rendered: {why}")
