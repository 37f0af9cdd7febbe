"""What axe-core finds on a page: WCAG 2.2 at the levels A and AA, and what axe calls best practice."""

import json
from typing import Any

NARROW, WIDE = 390, 1280  # CSS pixels
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}


def assert_accessible(page: Any) -> None:
    """Fail with axe's findings on the page as it is: in light and in dark colours, wide and narrow."""
    found = dict[str, None]()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 800})
            found |= dict.fromkeys(f"{scheme}, {width} px: {each}" for each in findings(page))
    assert not found, "\n".join(found)


def findings(page: Any) -> list[str]:
    """A line for each element that breaks a rule: the rule, the element and why."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{rule['id']}: {json.dumps(node['target'])} {node['html'][:200]}\n  {node.get('failureSummary', rule['help'])}"
        for rule in violations
        for node in rule["nodes"]
    ]
