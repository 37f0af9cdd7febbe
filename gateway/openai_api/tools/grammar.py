"""The grammar of calls in a style: each call names one of the tools, and its arguments fit the tool's schema.

It is a text for the option `grammar`, in llguidance's Lark syntax, built from how the style writes calls (`Writing`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.openai_api.tools.free_text import TEXT_ARGUMENT, TextArgument
from gateway.openai_api.tools.json_objects import LIST
from gateway.openai_api.tools.json_text import referred
from gateway.openai_api.tools.lark import in_json, lark_of, may_not_end
from gateway.openai_api.tools.reader import BareKeys, Keywords, Parameters, Writing
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import ONE_LINE

_WITHOUT_QUOTES = ("number", "integer", "boolean", "null")
_MOST_RULES = 2000  # of one grammar
_LEXEMES = (r"TEXT: /(?s:.*)/", r'KEY: /[^\s<>{}\[\]",:=]+/', "WORD: /[A-Za-z_][A-Za-z0-9_]*/", "NUMBER: /[0-9]{1,4}/")
Schema = Mapping[str, Any]


def calls_grammar(
    writing: Writing,
    tools: Mapping[str, Schema | None],
    control: Mapping[str, int],
    *,
    parallel: bool = True,
    free: bool = False,
    document: Schema | bool | None = None,
) -> str | None:
    """The grammar of texts with calls of these tools; None: it would forbid nothing.

    `tools`: those that may be called, at least one. Without a schema: with any arguments.
    `control`: ids of the control tokens in `writing.tokens`, by what they spell.
    `parallel`: whether there may be several calls.
    `free`: whether there may be no call, and other text beside calls: then each call fits from its trigger on, where
        the style has one. Otherwise the text is one call, or more of them.
    `document`: a JSON Schema, true for any JSON: the text may be such a document in place of calls.

    Raises InvalidRequest for parameters that cannot be written in the style.
    """
    return None if free and writing.trigger is None else _Grammar(writing, control).of(tools, parallel, free, document)


class _Grammar:
    """The rules of one grammar, as they are collected."""

    def __init__(self, writing: Writing, control: Mapping[str, int]) -> None:
        self._writing, self._control = writing, control
        self._markers = _any_of(control)
        self._rules: dict[str, str] = {}  # bodies by name
        self._names: dict[tuple[str, str], str] = {}  # by body and options
        self._free = False  # whether there may be no call

    def of(self, tools: Mapping[str, Schema | None], parallel: bool, free: bool, document: Schema | bool | None) -> str:
        self._free = free
        if document is not None:
            return self._text(" | ".join(self._calls_or_document(tools, parallel, document)))
        if not free or self._writing.trigger is None:
            return self._text(self._calls(tools, parallel))
        begun = f"{self._up_to(self._writing.trigger)} {self._calls(tools, parallel, self._writing.trigger)}"
        return self._text(f"({begun})* TEXT" if parallel else f"{begun} | TEXT")

    def _text(self, start: str) -> str:
        lines = [f"start: {start}", *(f"{name}: {body}" for name, body in self._rules.items())]
        return "\n".join([*lines, *_LEXEMES])

    def _calls(self, tools: Mapping[str, Schema | None], parallel: bool, begun: str = "") -> str:
        """Calls in the style, after the text `begun`."""
        writing = self._writing
        in_json = writing.begin.endswith('"')  # the name is the content of a string then
        named = ((name, json.dumps(name)[1:-1] if in_json else name, schema) for name, schema in tools.items())
        self._rules["call"] = " | ".join(self._call(*each) for each in named)
        more = f"({self._literal(writing.between + writing.begin)} call)*" if parallel and writing.several else ""
        opening = (writing.before + writing.begin).removeprefix(begun)
        return f"{self._literal(opening)} call {more} {self._literal(writing.after)}"

    def _calls_or_document(
        self, tools: Mapping[str, Schema | None], parallel: bool, document: Schema | bool
    ) -> Iterator[str]:
        """The forms that a text may have. JSON has the same lexemes in all forms, since the lexer reads the longest
        one."""
        writing, schema = self._writing, document if isinstance(document, Mapping) else {}
        if (writing.before + writing.begin).startswith(("{", "[{")):
            self._rules["call"] = self._json_calls(tools, writing.begin, writing.middle)
            more = f"({self._literal(writing.between)} call)*" if parallel else ""
            yield f"{_lexemes(writing.before)} call {more} {_lexemes(writing.after)}"
        else:
            yield self._calls(tools, parallel)
        if writing.plain:
            yield self._json_calls(tools, LIST.begin, LIST.middle)
        yield self._json(schema, schema)

    def _json_calls(self, tools: Mapping[str, Schema | None], begin: str, middle: str) -> str:
        """A call that is an object of JSON."""
        return " | ".join(
            f'{_lexemes(begin + name + middle)} {self._object(schema)} "}}"' for name, schema in tools.items()
        )

    def _call(self, name: str, written: str, schema: Schema | None) -> str:
        """A tool's call behind its `begin`."""
        form, writing = self._writing.arguments, self._writing
        head = self._literal(written + writing.middle)
        if writing.number:
            head = f"{self._literal(written + ':')} NUMBER {self._literal(writing.middle)}"
        if isinstance(schema, TextArgument) and schema.syntax:
            try:
                return f"{head} {self._free_text(form, schema)} {self._literal(writing.end)}"
            except ValueError as error:
                if not self._free:
                    raise InvalidRequest(
                        f"tools: the grammar of {name} cannot be kept to in calls of this model, as it has {error}: "
                        "leave tool_choice out, or make it plainer",
                        param="tools",
                    ) from None
                schema = None
        if form is None:
            return f"{head} {self._object(schema)} {self._literal(writing.end)}"
        if schema is None:
            return f"{head} {self._any(form)} {self._literal(writing.end)}"
        try:
            if isinstance(form, Parameters):
                arguments = self._parameters(form, schema)
            elif isinstance(form, Keywords):
                arguments = self._keywords(form, schema)
            else:
                arguments = self._bare(form, {"type": "object", **schema}, schema)
        except _NoForm as error:
            raise InvalidRequest(
                f"tools: the parameters of {name} have {error}, which cannot be kept to in the calls of this model: "
                "leave strict and tool_choice out, or make the schema plainer",
                param="tools",
            ) from None
        return f"{head} {arguments} {self._literal(writing.end)}"

    def _free_text(self, form: Parameters | BareKeys | Keywords | None, schema: TextArgument) -> str:
        """The argument of a tool that takes a free text, under its grammar. Raises ValueError if it has no form."""
        given, key = (schema.syntax, schema.definition), TEXT_ARGUMENT
        if isinstance(form, Parameters):
            lark, begin, end = lark_of(*given), f"{form.begin}{key}{form.middle}", form.end
        elif isinstance(form, BareKeys):
            lark, begin, end = lark_of(*given), f"{{{key}:{form.quote}", f"{form.quote}}}"
        elif isinstance(form, Keywords):
            lark, begin, end = in_json(*given), f'{key}{form.middle}"', '"'
        else:
            lark, begin, end = in_json(*given), f'{{"{key}": "', '"}'
        if isinstance(form, Parameters | BareKeys) and may_not_end(lark):
            raise ValueError("a terminal that may have any lines")
        return f"{self._literal(begin)} %lark {{\n{lark}\n}} {self._literal(end)}"

    def _any(self, form: Parameters | BareKeys | Keywords) -> str:
        """Any arguments."""
        if isinstance(form, Parameters):
            return f"({self._literal(form.begin)} KEY {self._literal(form.middle)} {self._text_of(form)})*"
        if isinstance(form, Keywords):
            pair = f"WORD {self._literal(form.middle)} {self._json({}, {})}"
            return f"({pair} ({self._literal(form.between)} {pair})*)?"
        self._rules["object"] = '"{" (KEY ":" value ("," KEY ":" value)*)? "}"'
        text = f"{self._literal(form.quote)} {self._up_to(form.quote)}"
        plain = self._json({"type": [*_WITHOUT_QUOTES]}, {})
        self._rules["value"] = f'object | "[" (value ("," value)*)? "]" | {text} | {plain}'
        return "object"

    def _parameters(self, form: Parameters, root: Schema) -> str:
        def pair(key: str, schema: Schema) -> str:
            choices = _texts_of(schema)
            text = choices is not None or _is_text(schema)
            head = self._literal(form.begin + key + (form.middle if text or form.other is None else form.other))
            if choices is not None:
                return f"{head} ({' | '.join(map(self._literal, choices))}) {self._literal(form.end)}"
            if text:
                return f"{head} {self._text_of(form)}"
            return f"{head} {self._json(schema, root)} {self._literal(form.end)}"

        return self._members(root, pair, "")

    def _text_of(self, form: Parameters) -> str:
        """Raw text up to the marker that ends it for a reader, also within a line."""
        if form.end.startswith("\n"):
            return self._up_to(form.end[1:])
        marker = form.end.rstrip()
        return f"{self._up_to(marker)} {self._literal(form.end[len(marker) :])}"

    def _keywords(self, form: Keywords, root: Schema) -> str:
        def pair(key: str, schema: Schema) -> str:
            if not key.isidentifier():
                raise _NoForm(f"the name {key!r}")
            return f"{self._literal(key + form.middle)} {self._json(schema, root)}"

        return self._members(root, pair, form.between)

    def _bare(self, form: BareKeys, schema: Schema, root: Schema) -> str:
        """A value with bare keys, and strings between quotes."""
        if "$ref" in schema:
            return self._referred(form, schema["$ref"], root)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                return self._rule(" | ".join(self._bare(form, each, root) for each in schema[name]))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return self._rule(" | ".join(self._literal(_bare_text(form, each)) for each in values))
        kinds = schema.get("type", [])
        if isinstance(kinds, list):
            plain = kinds or ["string", *_WITHOUT_QUOTES]
            return self._rule(" | ".join(self._bare(form, {**schema, "type": each}, root) for each in plain))
        if kinds == "object":
            pairs = self._members(
                schema, lambda key, each: f"{self._literal(key + ':')} {self._bare(form, each, root)}", ","
            )
            return f'"{{" {pairs} "}}"'
        if kinds == "array":
            item = self._rule(self._bare(form, schema.get("items", {}), root))
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            rest = f'("," {item}){{{max(0, least - 1)},{"" if most is None else max(0, most - 1)}}}'
            items = f"{item} {rest}" if most != 0 else ""
            return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'
        if kinds == "string":
            return f"{self._literal(form.quote)} {self._up_to(form.quote)}"
        return self._json(schema, root)

    def _referred(self, form: BareKeys, reference: str, root: Schema) -> str:
        name = "ref_" + re.sub(r"\W", lambda found: f"_{ord(found[0]):x}_", reference)
        if name not in self._rules:
            self._rules[name] = ""  # so that a schema that refers to itself ends
            target = referred(reference, root)
            if not isinstance(target, Mapping) or not reference.startswith("#/"):
                raise _NoForm(f"the reference {reference!r}")
            self._rules[name] = self._bare(form, target, root)
        return name

    def _members(self, schema: Schema, pair: Callable[[str, Schema], str], between: str) -> str:
        """The members of an object in the order of its properties, of which those that are not required may be absent.

        `pair`: the form of one.
        """
        required = schema.get("required", ())
        written = alone = '""'  # the rest behind some members, and behind none
        for key, each in reversed(list(schema.get("properties", {}).items())):
            one = self._rule(pair(key, each if isinstance(each, Mapping) else {}))
            later = f"{self._literal(between)} {one} {written}"
            first = f"{one} {written}"
            if key not in required:
                later, first = f"{later} | {written}", f"{first} | {alone}"
            written, alone = self._rule(later), self._rule(first)
        return alone

    def _object(self, schema: Schema | None) -> str:
        """Arguments as an object of JSON. None: any."""
        return self._json({"type": "object", **(schema or {})}, schema or {})

    def _json(self, schema: Schema, root: Schema) -> str:
        """JSON under a schema in one line. `root`: the schema that it is part of, to which it may refer."""
        shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
        return f"%json {json.dumps({**shared, **schema, 'x-guidance': ONE_LINE})}"

    def _up_to(self, marker: str) -> str:
        """Any text up to a marker, and the marker."""
        token = self._markers.search(marker)
        if token is None:
            return self._rule(f"TEXT {self._literal(marker)}", "[lazy]")
        head = re.escape(marker[: token.start()]).replace("/", r"\/")
        before = f"/(?s:.*){head}/" if head else "TEXT"
        return f"{before} {self._literal(marker[token.start() :])}"  # a token ends any text

    def _literal(self, text: str) -> str:
        """A text, with its control tokens as tokens."""
        return literal_of(text, self._control)

    def _rule(self, body: str, options: str = "") -> str:
        """The name of a rule with this body. Raises InvalidRequest for too many."""
        if (body, options) not in self._names:
            if len(self._rules) >= _MOST_RULES:
                raise InvalidRequest("tools: too many parameters for a grammar", param="tools")
            name = self._names[body, options] = f"r{len(self._rules)}"
            self._rules[name + options] = body
        return self._names[body, options]


def literal_of(text: str, control: Mapping[str, int]) -> str:
    """A text, with its control tokens as tokens. `control`: their ids by what they spell."""
    parts, at = list[str](), 0
    for found in _any_of(control).finditer(text):
        parts += [json.dumps(text[at : found.start()], ensure_ascii=False), f"<[{control[found[0]]}]>"]
        at = found.end()
    parts.append(json.dumps(text[at:], ensure_ascii=False))
    return " ".join(each for each in parts if each != '""') or '""'


def _any_of(control: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) or r"(?!)")


def _lexemes(text: str) -> str:
    """JSON in one line, as the lexemes that llguidance has of it."""
    return " ".join(json.dumps(each) for each in re.findall(r'"[^"]*"|, |: |[{}\[\]]', text))


class _NoForm(Exception):
    """The style has no form for this."""


def _texts_of(schema: Schema) -> Sequence[str] | None:
    """The texts that a schema allows, if it allows some texts only."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values if isinstance(values, list) and all(isinstance(each, str) for each in values) else None


def _is_text(schema: Schema) -> bool:
    """Whether a value may be a string outside an enum."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return kinds == "string"
    if isinstance(kinds, list):
        return "string" in kinds
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return (not parts and "$ref" not in schema and "enum" not in schema) or any(_is_text(each) for each in parts)


def _bare_text(form: BareKeys, value: Any) -> str:
    if isinstance(value, Mapping | list):
        raise _NoForm("an enum of objects")
    return f"{form.quote}{value}{form.quote}" if isinstance(value, str) else json.dumps(value)
