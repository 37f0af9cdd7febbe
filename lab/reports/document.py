"""An HTML page that needs no other file: no external content, no script except its own, and a policy that forbids all
others by hashes."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from lab.reports.markup import Child, Markup, joined, tag

_STYLE = files(__package__).joinpath("pages.css").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'"
# What begins or ends something within the element of a script, even in a string or a comment of it.
_BREAKS_OUT = re.compile("<(?:!--|/?script)", re.IGNORECASE)
_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\x7f"}


def document(
    title: str,
    header: Iterable[Markup],
    main: Iterable[Markup],
    footer: str,
    *,
    style: str = "",
    script: str = "",
    data: Any = None,
) -> str:
    """The page.

    `header`: what follows the title.
    `style`: rules behind those of all reports.
    `script`: a module without imports, which runs when the page is there (see `scripts.bundled`); empty: none runs.
    `data`: JSON values, which the script and other programs find in the element `data`; None: there are none.

    Raises ValueError for a script that HTML would end before its end, and for data that JSON has no form for.
    """
    if _BREAKS_OUT.search(script):
        raise ValueError("the script holds a tag that would end it, or hide its end: spell it otherwise")
    style = _STYLE + style
    policy = _POLICY.format(_hash(style), _hash(script) if script else "'none'")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
        *([tag("script", Markup(script), type="module")] if script else []),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), *header),
        tag("main", *main),
        tag("footer", footer),
        *([] if data is None else [_embedded(data)]),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _hash(content: str) -> str:
    """A source of the policy: exactly this content."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _embedded(data: Any) -> Markup:
    """JSON that no browser runs, and in which no text can end the element: there is no `<` in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    return tag("script", Markup(text), type="application/json", id="data")


def contents(links: Iterable[tuple[str, str]]) -> Markup:
    """Links to the parts of the page. `links`: the `id` of each and its name."""
    items = (tag("li", tag("a", name, href=f"#{to}")) for to, name in links)
    return tag("nav", tag("ul", *items), aria_label="Contents")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> Markup:
    """A table that scrolls by itself where the screen is narrow, with the keyboard, too."""
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in headings)))
    body = tag(
        "tbody",
        *(tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows),
    )
    return tag("div", tag("table", head, body), class_="scroll", role="region", aria_label=label, tabindex="0")


def folded(title: str, *children: Markup) -> Markup:
    """Content that a click on its title shows."""
    return tag("details", tag("summary", title), *children)


def charted(caption: str, told: str, chart: Markup) -> Markup:
    """A chart below its caption. `told`: in smaller letters below the caption."""
    return tag("figure", tag("figcaption", caption, tag("span", told)), chart)


def terms(each: Iterable[tuple[str, Sequence[Child]]]) -> Markup:
    """Terms with their definitions."""
    return tag("dl", *(joined(tag("dt", word), tag("dd", *meaning)) for word, meaning in each))
