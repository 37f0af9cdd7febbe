"""The documentation: links lead somewhere, what is made from the code has all of it, every public name is explained."""

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import drafter_client
from drafter_client.cli.commands import drafter_options
from drafter_client.cli.flags import NAMES
from drafter_client.display.panel_rows import exactness
from gateway.router.settings import OPTIONS as ROUTER
from scripts.reference_pages import COMMANDS, PAGES, rules
from specpair.speculation.acceptance.strategies import Strategy
from tests.paths import ROOT
from verifier_server.api.operations import OPERATIONS
from verifier_server.settings import Settings, from_flags

README = ROOT / "README.md"
MADE = {ROOT / "docs" / name: name for name in PAGES}  # on the site only
WRITTEN = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SITE = [*WRITTEN[1:], *MADE]
EVERY = [*WRITTEN, *MADE, ROOT / "lab" / "README.md"]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def _text(page: Path) -> str:
    return PAGES[MADE[page]]() if page in MADE else page.read_text(encoding="utf-8")


def test_pages_made_from_the_code_have_every_flag_setting_and_endpoint() -> None:
    command_line, settings, rest = (
        _text(ROOT / "docs" / "reference" / name) for name in ("command-line.md", "settings.md", "rest.md")
    )
    flags = {
        action.option_strings[0] for make in COMMANDS.values() for action in make().actions() if action.option_strings
    }
    assert [each for each in flags - {"-h", "--version"} if f"| `{each}" not in command_line] == []
    variables = [f"VERIFIER_{name.upper()}" for name in Settings.model_fields]
    variables += [f"DRAFTER_{name.upper()}" for name in NAMES.settings]
    variables += [f"ROUTER_{name.upper()}" for name in ROUTER]
    assert [each for each in variables if f"| `{each}` |" not in settings] == []
    assert [each for each in OPERATIONS if f"## {each.method} {each.described_path}\n" not in rest] == []


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_page_has_no_placeholders(page: Path) -> None:
    assert not re.findall(r"^[A-Z]+_[A-Z]+$|\bTODO\b|\bXXX\b", _text(page), re.MULTILINE)


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """`make docs` checks this for the site; here, for the pages as a repository shows them, too. The README, which is
    no part of the site, has no link to a page that only the site has."""
    text = _FENCED.sub("", _text(page))
    for address in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
        if "://" in address:
            continue
        name, _, heading = address.partition("#")
        target = page if not name else (page.parent / name).resolve()
        assert target.exists() or (target in MADE and page != README), address
        if heading:
            assert heading in _headings(target), address


def _headings(page: Path) -> set[str]:
    """The addresses of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", _FENCED.sub("", _text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(
        r"^ +- (?:[\w ]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = {str(page.relative_to(ROOT / "docs")) for page in SITE}
    assert set(listed) == pages and len(listed) == len(pages)


def test_overview_links_every_written_page_once() -> None:
    links = re.findall(
        r"\]\(([\w/-]+\.md)\)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split("\n## ", 1)[1]
    )
    assert sorted(links) == sorted(str(page.relative_to(ROOT / "docs")) for page in WRITTEN[1:] if page.stem != "index")


def test_each_promise_is_shown_by_tests_and_commands_that_exist() -> None:
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!promise \||-)(.+) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) > 10 and [promise for promise, shown in rows if not re.search(r"`(make |tests/)", shown)] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path, _, name in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(::(\w+))?`", text):
        module = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", module, re.MULTILINE), f"{path}::{name}"


def _example_file() -> str:
    """The example of `specpair.toml`."""
    return re.findall(r"^```toml$\n(.*?)^```$", (ROOT / "docs" / "service.md").read_text(), re.MULTILINE | re.DOTALL)[0]


def test_example_of_a_settings_file_is_valid_for_both_ends(tmp_path: Path) -> None:
    model = tmp_path / "models" / "llama-3.1-8b-instruct-q8_0.gguf"
    model.parent.mkdir()
    model.touch()
    file = tmp_path / "specpair.toml"
    file.write_text(_example_file())
    settings, address = from_flags(["--config", str(file)], {})
    assert (settings.model, settings.slots, address.host) == (model, 8, "0.0.0.0")
    options = drafter_options(["--config", str(file), "--prompt", "x"])
    assert (options.verifier, options.temperature, options.lookup) == ("http://bigbox:8000", 0.7, False)
    assert options.api_key == settings.api_key


def test_tables_have_every_strategy() -> None:
    text = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    assert [each for each in Strategy if not re.search(rf"^\| `{each}`.* \| .+ \| .+ \|", text, re.MULTILINE)] == []
    of_panel = {each: exactness(each, drafted=True) for each in Strategy if each is not Strategy.COUPLED}
    assert [each for each, words in of_panel.items() if words == "?"] == []


def test_table_of_what_is_taken_is_that_of_the_code() -> None:
    text = (
        (ROOT / "docs" / "agents.md").read_text(encoding="utf-8").split("## What is taken", 1)[1].split("\n## ", 1)[0]
    )
    written, made = ([row.strip("|").split(" | ") for row in rows] for rows in (text.splitlines(), rules()))
    rows = [row for row in written if len(row) == 3][1:]  # without its head
    assert [row[:2] for row in rows] == [row[:2] for row in made]
    for row, whole in zip(rows, made, strict=True):
        names = re.findall("`.+?`", row[2])
        assert {*names} <= {*re.findall("`.+?`", whole[2])} and (names or row == whole)


def test_python_reference_lists_every_public_name() -> None:
    listed = re.findall(r"^::: (\S+)\.(\w+)$", _text(ROOT / "docs" / "reference" / "python.md"), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(drafter_client.__all__)
    for home, name in listed:
        assert getattr(import_module(home), name) is getattr(drafter_client, name)


def test_every_public_name_is_documented() -> None:
    missing = [where for name in drafter_client.__all__ for where in _undocumented(name)]
    assert not missing


def _undocumented(name: str) -> list[str]:
    """What lacks a docstring: the public object `name`, or its public methods and properties."""
    public = getattr(drafter_client, name)
    if not isinstance(public, type):
        return [] if not callable(public) or inspect.getdoc(public) else [name]
    missing = [] if public.__doc__ and not public.__doc__.startswith(f"{name}(") else [name]
    for attribute, value in vars(public).items():
        if not attribute.startswith("_") and isinstance(value, property) | inspect.isfunction(value):
            missing += [] if inspect.getdoc(getattr(public, attribute)) else [f"{name}.{attribute}"]
    return missing
