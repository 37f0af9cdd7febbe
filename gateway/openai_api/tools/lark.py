"""Grammars of free texts, in Lark or as a regular expression: also of such a text as the content of a JSON string."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

Atom = tuple[str, bool]  # what matches one character, and whether a dot there matches a newline
# What JSON escapes. Other control characters, whose escapes are longer, are matched by no wider atom than themselves.
_ESCAPED = '"\\\b\t\n\f\r'
_PLAIN = r'[^"\\\x00-\x1F]'  # what stands in a JSON string as it is
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_REGEX = r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"
_PIECES = re.compile(
    rf"(?P<comment>//[^\n]*|\#[^\n]*)|(?P<range>{_STRING}\s*\.\.\s*{_STRING})|(?P<string>{_STRING})(?P<i>i?)"
    rf"|(?P<regex>{_REGEX})(?P<flags>[imslux]*)|(?P<nested>%(?:json|lark|regex)\b|<[^>\s]+>|@\w+)|(?P<name>\w+)"
)
_IMPORT = re.compile(r"\s*%import\s+common\s*(?:\.\s*(\w+)(?:\s*->\s*(\w+))?|\(([\w\s,]+)\))")
_STATEMENT = re.compile(r"\n(?=[!?_]*[A-Za-z]\w*(?:\.\d+)?[ \t]*:|%)")
_TERMINAL = re.compile(r"\s*(_*[A-Z][A-Z0-9_]*)\b[^:]*:")
_COMMON = {  # terminals of Lark's library that have what JSON escapes
    "CR": r"\r",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
}
_ATOM = re.compile(
    r"(?P<group>\((?:\?(?:P?<\w+>|[a-zA-Z-]*[:)]))?)|(?P<quantifier>\{[0-9,]+\}|[*+?])|(?P<operator>[|)^$])"
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\\(?:[xu]\{\w+\}|x\w\w|u\w{4}|[pP]\{[^}]+\}|.)|.",
    re.S,
)


class _Piece(NamedTuple):
    """A part of a regular expression, an atom or a group, and how often it comes."""

    atoms: list[Atom]  # in a group: all of them
    quantifier: str = ""
    group: str = ""  # how it is opened
    branches: Sequence[Sequence["_Piece"]] = ()  # of a group

    @property
    def parts(self) -> list["_Piece"]:
        return [piece for branch in self.branches for piece in branch]

    @property
    def runs(self) -> bool:
        """Whether it, or a part of it, may have several characters, also some that JSON escapes."""
        repeated = self.quantifier not in ("", "?") and any(map(_specials, self.atoms))
        return repeated or any(piece.runs for piece in self.parts)

    @property
    def single(self) -> bool:
        """Whether it matches one character each time."""
        return all(len(each) == 1 and not each[0].quantifier and each[0].single for each in self.branches)


Branches = Sequence[Sequence[_Piece]]


def lark_of(syntax: str, definition: str) -> str:
    """The grammar of a text in Lark. `syntax`: lark or regex. Raises ValueError."""
    return definition if syntax == "lark" else _of_regex(definition, lambda atom: atom[0])


def in_json(syntax: str, definition: str) -> str:
    """The same of the texts as contents of JSON strings, in which each character has one form.

    A lexer reads the longest lexeme, and does not go back by more than a character. So a terminal that may end with an
    escape, such as the rest of a line, becomes a rule.

    Raises ValueError for what has no such form.
    """
    if syntax == "regex":
        return _of_regex(definition, _escaped)
    lark = _PIECES.sub(lambda found: "" if found["comment"] else found[0], definition)
    statements = [each for statement in _STATEMENT.split(lark) for each in _resolved(statement)]
    terminals = {name[1]: each for each in statements if (name := _TERMINAL.match(each))}
    ruled: dict[str, str] = {}  # new names of terminals that become rules
    while more := [name for name, each in terminals.items() if name not in ruled and _is_special(each, ruled)]:
        ruled |= {name: f"t_{name.lower()}" for name in more}
    ignored = [each for each in statements if each.lstrip().startswith("%ignore")]
    lexemes = [*ignored, *(terminals[name] for name in ruled if ignored)]
    rules = [each for each in statements if each not in ignored]
    return "\n".join([*(_rewritten(each, ruled) for each in rules), *(_rewritten(each, None) for each in lexemes)])


def may_not_end(lark: str) -> bool:
    """Whether a marker behind a text may be taken for a part of the text: one of its terminals may be any lines."""
    return any(all(any(_has(*atom, c) for atom in _atoms(found)) for c in "\n<") for found in _PIECES.finditer(lark))


def _resolved(statement: str) -> list[str]:
    """A statement; an import as the definitions of the terminals that it names, if they have what JSON escapes."""
    if (found := _IMPORT.match(statement)) is None:
        return [statement]
    names = {found[1]: found[2] or found[1]} if found[1] else {each: each for each in re.findall(r"\w+", found[3])}
    if any(name.endswith("COMMENT") for name in names):
        raise ValueError("comments of Lark's library")
    plain = {name: f"%import common.{name} -> {alias}" for name, alias in names.items()}
    return [f"{names[name]}: /{_COMMON[name]}/" if name in _COMMON else plain[name] for name in names]


def _is_special(terminal: str, ruled: Mapping[str, str]) -> bool:
    """Whether a terminal may have what JSON escapes. `ruled`: others that may."""
    for found in _PIECES.finditer(terminal.partition(":")[2]):
        text = json.loads(found["string"]) if found["string"] else ""
        if found["range"] or found["name"] in ruled or _in_json(text) != text or any(map(_specials, _atoms(found))):
            return True
    return False


def _rewritten(statement: str, ruled: Mapping[str, str] | None) -> str:
    """A statement of the texts in JSON strings. `ruled`: new names of terminals; None: it says what is ignored."""

    def piece(found: re.Match[str]) -> str:
        if found["name"]:
            return (ruled or {}).get(found[0], found[0])
        if found["range"]:
            first, last = (re.escape(json.loads(each)) for each in re.findall(_STRING, found["range"]))
            return f"/{_escaped((f'[{first}-{last}]', False))}/"
        if found["string"]:
            return json.dumps(_in_json(json.loads(found["string"])), ensure_ascii=False) + found["i"]
        if found["nested"]:
            raise ValueError(f"{found[0][:40]!r}")
        branches, flags = _branches(found["regex"][1:-1], "s" in found["flags"]), found["flags"].replace("s", "")
        if ruled is not None:
            return f"({_rule(branches, flags)})"
        if len(branches) == len(branches[0]) == 1:  # what is ignored is ignored again
            branches = [[branches[0][0]._replace(quantifier="")]]
        return f"/{_lexeme(branches, _escaped)}/{flags}"

    return _PIECES.sub(piece, statement)


def _of_regex(definition: str, written: Callable[[Atom], str]) -> str:
    inner = definition.removeprefix("^")
    if inner.endswith("$") and not inner.endswith(r"\$"):
        inner = inner[:-1]
    lexeme = _lexeme(_branches(inner, False), written)
    in_slashes = re.sub(
        r"\\.|[/\n]", lambda found: {"/": r"\/", "\n": r"\n"}.get(found[0], found[0]), lexeme, flags=re.S
    )
    return f"start: /{in_slashes}/"


def _branches(regex: str, dots: bool) -> Branches:
    """The branches of a regular expression. `dots`: whether a dot matches a newline."""
    opened: list[tuple[list[list[_Piece]], str, bool]] = [([[]], "", dots)]
    for found in _ATOM.finditer(regex):
        branches, group, dots = opened[-1]
        if begin := found["group"]:
            on, _, off = begin[2:-1].partition("-") if begin[1:2] == "?" and begin[-1] in ":)" else ("", "", "")
            if "x" in on or "u" in off:
                raise ValueError(f"{begin!r} in a regular expression")
            dots = ("s" in on or dots) and "s" not in off
            if begin[-1] == ")":
                opened[-1] = (branches, group, dots)
                branches[-1].append(_Piece([], "", begin))
            else:
                opened.append(([[]], begin, dots))
        elif found["operator"] == ")" and len(opened) > 1:
            opened.pop()
            atoms = [atom for branch in branches for piece in branch for atom in piece.atoms]
            opened[-1][0][-1].append(_Piece(atoms, "", group, branches))
        elif found["operator"] == "|":
            branches.append([])
        elif found["quantifier"] and branches[-1] and not branches[-1][-1].quantifier:
            branches[-1][-1] = branches[-1][-1]._replace(quantifier=found[0])
        elif found["operator"] or found["quantifier"]:
            raise ValueError(f"{found[0]!r} in a regular expression")
        else:
            branches[-1].append(_Piece([(found[0], dots)]))
    if len(opened) > 1:
        raise ValueError("a bracket without its other in a regular expression")
    return opened[0][0]


def _lexeme(branches: Branches, written: Callable[[Atom], str]) -> str:
    """A regular expression with other atoms."""

    def piece(part: _Piece) -> str:
        inner = f"{part.group}{_lexeme(part.branches, written)})" if part.branches else part.group
        return (inner or written(part.atoms[0])) + part.quantifier

    return "|".join("".join(map(piece, branch)) for branch in branches)


def _rule(branches: Branches, flags: str) -> str:
    return " | ".join(_sequence(branch, flags) for branch in branches)


def _sequence(pieces: Sequence[_Piece], flags: str) -> str:
    """A branch of a regular expression as a part of a rule, in which a run at its end is taken apart."""
    for piece, behind in pairwise(pieces):
        if piece.runs and not _ends(piece, behind):
            raise ValueError("a regular expression with a part of any length before its end")
    if not pieces or not pieces[-1].runs:
        return f"/{_lexeme([pieces], _escaped)}/{flags}" if pieces else '""'
    *before, last = pieces
    if last.single:
        plain = "|".join(dict.fromkeys(filter(None, map(_plain, last.atoms))))
        many = "+" if last.quantifier in ("*", "+") else ""
        escapes = dict.fromkeys(json.dumps(_in_json(c)) for atom in last.atoms for c in _specials(atom))
        inner = " | ".join([*([f"/(?:{plain}){many}/{flags}"] if plain else []), *escapes])
    elif last.quantifier in ("", "?") or not any(piece.runs for piece in last.parts):
        inner = _rule(last.branches, flags)
    else:
        raise ValueError("a regular expression that repeats a part of any length")
    head = f"/{_lexeme([before], _escaped)}/{flags} " if before else ""
    return f"{head}({inner}){last.quantifier}"


def _ends(run: _Piece, behind: _Piece) -> bool:
    """Whether a run ends where the character behind it comes."""
    source = "" if behind.branches or behind.quantifier or not behind.atoms else behind.atoms[0][0]
    if len(source) == 2 and source[0] == "\\":
        source = {"n": "\n", "t": "\t"}.get(source[1], "" if source[1].isalnum() else source[1])
    inner = any(piece.runs for piece in run.parts)
    return len(source) == 1 and source != "." and not inner and not any(_has(*atom, source) for atom in _firsts(run))


def _firsts(piece: _Piece) -> Iterator[Atom]:
    """What may match the first character of a part."""
    for branch in piece.branches:
        for each in branch:
            yield from _firsts(each)
            if each.quantifier not in ("*", "?"):
                break
    if not piece.branches:
        yield from piece.atoms


def _atoms(found: re.Match[str]) -> list[Atom]:
    """Those of a regular expression, if it is one."""
    branches = _branches(found["regex"][1:-1], "s" in found["flags"]) if found["regex"] else []
    return [atom for branch in branches for piece in branch for atom in piece.atoms]


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(atom: Atom) -> str:
    """What matches one character, as it stands in a JSON string."""
    if not (specials := _specials(atom)):
        return atom[0]
    escapes = (re.escape(_in_json(c)) for c in specials)
    return f"(?:{'|'.join([*filter(None, [_plain(atom)]), *escapes])})"


def _plain(atom: Atom) -> str:
    """What it matches that stands in a JSON string as it is; empty: nothing."""
    source, _ = atom
    if source == "." or not _specials(atom):
        return _PLAIN if source == "." else source
    return f"[{source}&&{_PLAIN}]" if source[0] == "[" or source in (r"\s", r"\S", r"\W", r"\D") else ""


def _specials(atom: Atom) -> list[str]:
    """What an atom matches that JSON escapes."""
    own = next((chr(code) for code in range(0x20) if atom[0].lower() in (f"\\x{code:02x}", chr(code))), None)
    return [own] if own is not None else [c for c in _ESCAPED if _has(*atom, c)]


def _has(source: str, dots: bool, c: str) -> bool:
    """Whether an atom matches a character."""
    if source[:2] == r"\p":
        return False
    with suppress(re.error):
        return re.fullmatch(source, c, re.S if dots else 0) is not None
    raise ValueError(f"{source!r} in a regular expression")
