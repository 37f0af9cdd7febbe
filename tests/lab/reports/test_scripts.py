"""Modules of a page as one script."""

import re

import pytest

from lab.reports.scripts import bundled

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
