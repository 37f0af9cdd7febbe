"""How README, docs and commits are written, as far as a program can check it. `make lint` runs these tests, too."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "performance.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORDS, SHARE = 28, 0.04  # of a long sentence, and of all sentences that may be long
COMMITS = 60
VERBS = {"Bring", "Embed", "Exceed", "Feed", "Need", "Ping", "Seed", "Shed", "Speed"}  # not in the past
# What the drafter proposes and the target decides have one name each (docs/glossary.md).
REPLACED = {
    r"correction tokens?": "recovered token",
    r"own tokens?": "target-decoded token",
    r"free tokens?": "bonus token",
    r"guess(es)? of the (drafter|draft model)": "draft tokens",
    r"origin of (a|each|the) token": "token source",
    r"(goes|went) on by itself": "self-continues, self-continuation",
    r"big model|small one's|teacher": "target model, draft model",
}


def _prose(page: Path) -> str:
    """A page without code, tables, headings and addresses of links."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"^\s*\|.*$|^#.*$|\]\([^)]*\)|`", "", text, flags=re.MULTILINE)


def _sentences(page: Path) -> Iterator[str]:
    for each in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n[*-] ", _prose(page)):
        if len(each.split()) > 2:
            yield " ".join(each.split())


def _kilobytes(pages: list[Path]) -> float:
    return sum(page.stat().st_size for page in pages) / 1000


def test_pages_are_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert len(re.findall(r"\d\.\d", text)) <= 25, "decimals of the README"
    assert _kilobytes([PERFORMANCE]) <= 25
    assert _kilobytes([page for page in PAGES if page.is_relative_to(ROOT / "docs")]) <= 380


def test_sentences_are_short() -> None:
    every = [(page.name, each) for page in PAGES for each in _sentences(page)]
    long = [f"{name}: {each}" for name, each in every if len(each.split()) > WORDS]
    assert len(long) <= SHARE * len(every), "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_fit_a_screen(page: Path) -> None:
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"), flags=re.DOTALL)
    long = [
        f"{page.name}:{number}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > 120 and not line.lstrip().startswith(("|", "![")) and " " in line[:120].strip()
    ]
    assert not long


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_one_thing_has_one_word(page: Path) -> None:
    found = [
        f"{page.name}: {match[0]!r}: write {instead!r}"
        for words, instead in REPLACED.items()
        for match in re.finditer(rf"\b({words})\b", _prose(page), re.IGNORECASE)
    ]
    assert not found


def test_subjects_of_commits_are_short_and_imperative() -> None:
    git = ["git", "-C", str(ROOT), "log", f"-{COMMITS}", "--no-merges", "--format=%s"]
    try:
        ran = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no repository here")
    subjects = ran.stdout.splitlines()
    assert [each for each in subjects if len(each) > 72] == []
    first = [each.split()[0] for each in subjects]
    assert [
        each for each in first if not each[0].isupper() or (each.endswith(("ed", "ing")) and each not in VERBS)
    ] == []
