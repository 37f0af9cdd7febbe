"""Pages that need no other file: their policy, their script, and the data in them."""

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


def test_without_a_script_none_is_allowed() -> None:
    assert sources(page(), "script-src") == "'none'" and "<script" not in page()


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


def test_data_without_a_form_in_json_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page(data=float("nan"))
