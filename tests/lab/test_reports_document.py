"""A page needs no other file, and no text becomes markup; its script is made of the modules of other pages."""

import json
import re
from base64 import b64decode
from hashlib import sha256
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.reports.document import document
from lab.reports.scripts import bundled

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def page(**parts: Any) -> str:
    return document("title", [], [], "foot", **parts)


def sources(shown: str, directive: str) -> str:
    """What the policy allows."""
    policy = unescape(re.findall(r'content="(default-src [^"]*)"', shown)[0])
    return dict(each.strip().partition(" ")[::2] for each in policy.split(";"))[directive]


def test_only_its_own_style_and_script_are_allowed() -> None:
    shown = page(style=".a { color: red; }", script="f(1 < 2 && '</b>');")
    for name in ("style", "script"):
        [content] = re.findall(f'<{name}(?: type="module")?>(.*?)</{name}>', shown, re.DOTALL)
        digest = sources(shown, f"{name}-src").removeprefix("'sha256-").removesuffix("'")
        assert b64decode(digest) == sha256(content.encode()).digest()
    assert sources(shown, "default-src") == "'none'"


@pytest.mark.parametrize("broken", ["</script>", "</SCRIPT ", "<!-- ", "<script>"])
def test_a_script_that_html_would_end_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match="would end it"):
        page(script=f"say({broken!r})")


@given(VALUES)
def test_data_are_read_back_and_end_nothing(value: Any) -> None:
    shown = page(data=[value, "</script><!--<script>"])
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL)
    assert not set("<>&") & set(text)
    assert json.loads(text)[0] == value


MODULES = {
    "a.js": 'import { one, two as zwei } from "./b.js";\nimport { Three } from "./c.js";\nshow(one, zwei, Three);\n',
    "b.js": 'import { Three } from "./c.js";\nconst SAME = 1;\nexport const one = SAME;\nexport function two() {}\n',
    "c.js": "const SAME = 3; // export this\nexport class Three {}\nexport async function* many() {}\n",
    "unused.js": "",
}


def test_each_module_stands_once_behind_those_that_it_imports() -> None:
    assert bundled("a.js", MODULES) == (
        "const $c = (() => {\nconst SAME = 3; // export this\nclass Three {}\nasync function* many() {}\n"
        "return { Three, many };\n})();\n"
        "const $b = (() => {\nconst { Three } = $c;\nconst SAME = 1;\nconst one = SAME;\nfunction two() {}\n"
        "return { one, two };\n})();\n"
        "const $a = (() => {\nconst { one, two: zwei } = $b;\nconst { Three } = $c;\nshow(one, zwei, Three);\n"
        "return {  };\n})();\n"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('import { x } from "./none.js";', "a.js imports none.js, which is not there"),
        ('import { x } from "./a.js";', "modules import each other: a.js imports a.js"),
        ('import x from "./b.js";', 'a.js: this import or export is not understood: import x from "./b.js";'),
        ('import "https://example.org/x.js";', "is not understood"),
        ("export default 1;", "is not understood"),
        ("export let count = 0;", "is not understood"),
    ],
)
def test_what_is_not_understood_is_refused(code: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        bundled("a.js", {**MODULES, "a.js": code + "\n"})
