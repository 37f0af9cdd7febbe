"""An HTML page that needs no other file: no script, nothing from elsewhere, and a policy that forbids both."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256

from specpair.reports.markup import Child, Markup, joined, tag
from specpair.reports.style import STYLE

_POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def document(title: str, header: Iterable[Markup], main: Iterable[Markup], footer: str) -> str:
    """The page. `header`: what follows the title."""
    policy = _POLICY.format(b64encode(sha256(STYLE.encode()).digest()).decode())
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = tag("body", tag("header", tag("h1", title), *header), tag("main", *main), tag("footer", footer))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


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
    """What is shown when its title is clicked."""
    return tag("details", tag("summary", title), *children)


def charted(caption: str, told: str, chart: Markup) -> Markup:
    """A chart below its caption. `told`: in smaller letters below the caption."""
    return tag("figure", tag("figcaption", caption, tag("span", told)), chart)


def terms(each: Iterable[tuple[str, Sequence[Child]]]) -> Markup:
    """Words with what they mean."""
    return tag("dl", *(joined(tag("dt", word), tag("dd", *meaning)) for word, meaning in each))
