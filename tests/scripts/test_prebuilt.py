"""Which wheel of llama-cpp-python a page has for this machine, by the real pip, and how soon a dead page is noticed."""

import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import pytest

from scripts import prebuilt

OURS, FOREIGN = "py3-none-any", "py3-none-win32"


def wheel(folder: Path, version: str, tag: str = OURS) -> None:
    """A wheel without a module, by the name that llama-cpp-python's has."""
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: {version}\n",
        "WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"llama_cpp_python-{version}-{tag}.whl", "w") as file:
        for name, text in metadata.items():
            file.writestr(f"llama_cpp_python-{version}.dist-info/{name}", text)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a page that lists this folder."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("there", "wanted", "found"),
    [
        ([("1.5+specpair.1", OURS), ("1.5+cu13.specpair.1", OURS)], ["1.5"], "1.5+specpair.1"),
        (
            [("1.5+specpair.1", OURS), ("1.5+cu13.specpair.1", OURS)],
            ["1.5+cu13.specpair.1", "1.5"],
            "1.5+cu13.specpair.1",
        ),
        ([("1.5+specpair.1", OURS), ("1.5+specpair.2", FOREIGN)], ["1.5+cu13.specpair.1", "1.5"], "1.5+specpair.1"),
        ([("1.5+specpair.1", FOREIGN)], ["1.5"], ""),
        ([("1.6+specpair.1", OURS)], ["1.5"], ""),
        ([], ["1.5"], ""),
    ],
)
def test_pip_takes_the_best_wheel_that_fits(
    tmp_path: Path, there: list[tuple[str, str]], wanted: list[str], found: str
) -> None:
    page, folder = tmp_path / "page", tmp_path / "folder"
    page.mkdir()
    folder.mkdir()
    for version, tag in there:
        wheel(page, version, tag)
    with served(page) as address:
        assert prebuilt.trouble(address) == ""
        fetched = prebuilt.fetch(sys.executable, folder, address, wanted)
    assert (fetched.name if fetched else "") == (f"llama_cpp_python-{found}-{OURS}.whl" if found else "")


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("", []), ("470.82.01", []), ("535.54.03", ["cu12"]), ("580.65.06\n580.65.06", ["cu13", "cu12"])],
)
def test_versions_for_the_driver_come_before_that_for_processors(driver: str, cuda: list[str]) -> None:
    number = (prebuilt.ROOT / "scripts" / "wheel_number").read_text(encoding="utf-8").strip()
    assert prebuilt.versions("1.5", driver) == [*(f"1.5+{each}.specpair.{number}" for each in cuda), "1.5"]


def test_dead_pages_are_noticed_in_time(tmp_path: Path) -> None:
    assert prebuilt.PATIENCE <= 5
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made, and never answered
        silent_page = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        started = monotonic()
        assert prebuilt.trouble(silent_page, 0.2).startswith("does not answer")
        assert monotonic() - started < 2
    assert prebuilt.trouble(silent_page).startswith("does not answer (")
    with served(tmp_path) as address:
        assert prebuilt.trouble(address + "other/") == "answers with status 404"


@pytest.mark.parametrize(
    ("origin", "page"),
    [
        ("https://github.com/Someone/pair.git", "https://someone.github.io/pair/wheels/"),
        ("git@github.com:someone/pair", "https://someone.github.io/pair/wheels/"),
        ("https://example.com/someone/pair.git", ""),
        ("", ""),
    ],
)
def test_default_page_is_that_of_the_repository(monkeypatch: pytest.MonkeyPatch, origin: str, page: str) -> None:
    monkeypatch.delenv("SPECPAIR_WHEELS", raising=False)
    monkeypatch.setattr(prebuilt, "output", lambda *_: origin)
    assert prebuilt.page() == page
    monkeypatch.setenv("SPECPAIR_WHEELS", "/a/folder")
    assert prebuilt.page() == "/a/folder"
