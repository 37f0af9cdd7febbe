"""What tests of the page of `drafter serve` do with it."""

from typing import Any

COMPLETE = "The answer is complete."
MARKDOWN = """# Title

Some **bold**, *leaning* and `a < b` code, 2 * 3 * 4, snake_case_name.

- one
- two
  - deeper

3. third

| a | b |
|---|---|
| 1 | 2 \\| 3 |

> said

```python
def f(x):
    \"\"\"Long
    string.\"\"\"
    return "text"  # why
```
[there](https://example.org/path) and ~~gone~~"""


def ask(page: Any, text: str) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")


def answered(page: Any, status: str = COMPLETE) -> Any:
    """The last answer, when the status line says `status`."""
    page.get_by_role("status").filter(has_text=status).wait_for()
    return page.locator("article.assistant").last
