"""The page about OpenAI's API: its examples run as they are, and its table has every parameter."""

import json
import re
import shutil
import subprocess
import sys

import httpx
import pytest

from drafter_client.cli.commands import serve_parser
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest
from tests.gateway.openai_api.parrot import parrots
from tests.paths import ROOT

PAGE = ROOT / "docs" / "openai.md"
TEXT = PAGE.read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"


def _blocks(text: str, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for named, block in fenced if named == language]


def _ran(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True, timeout=120).stdout


def test_the_address_is_that_of_drafter_serve() -> None:
    default = serve_parser().get_default
    assert f"http://{default('host')}:{default('port')}" == ADDRESS
    assert set(re.findall(r"http://[\w.]+:\d+", TEXT)) == {ADDRESS, "http://bigbox:8000"}


def test_the_python_example_prints_the_target_s_answer(url: str, verifier_url: str) -> None:
    program, _ = _blocks(TEXT, "python")
    assert len(program.splitlines()) <= 15
    answer = _ran(sys.executable, "-c", program.replace(ADDRESS, url))
    request = {"prompt": "<user>Why is the sky blue?</><assistant>", "max_tokens": 200, "seed": 7, "temperature": 1.0}
    expected = httpx.post(f"{verifier_url}/generate", json=request, trust_env=False).json()["text"]
    assert answer.splitlines() == expected.splitlines()  # the pipe is read with universal newlines


def test_the_example_with_tools_runs() -> None:
    _, program = _blocks(TEXT, "python")
    question = "Do I need an umbrella in Cologne?"
    with parrots("target") as url:
        assert _ran(sys.executable, "-c", program.replace(ADDRESS, url)) == f"{question}\n"
        call = '<tool_call>\n{"name": "weather", "arguments": {"town": "Bonn"}}\n</tool_call>'
        # A parrot repeats what the user says, so the result is the user's.
        ended = program.replace(f'"{question}"', repr(call)).replace('"role": "tool"', '"role": "user"')
        assert _ran(sys.executable, "-c", ended.replace(ADDRESS, url)) == "It rains in Bonn.\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_request_with_curl_gets_the_target_s_text(url: str, verifier_url: str) -> None:
    (command,) = [block for block in _blocks(TEXT, "") if f"{ADDRESS}/v1/completions" in block]
    reply = json.loads(_ran("sh", "-c", command.replace(ADDRESS, url)))
    request = {"prompt": "def main(", "max_tokens": 6, "temperature": 0.8, "seed": 7}
    expected = httpx.post(f"{verifier_url}/generate", json=request, trust_env=False).json()["text"]
    assert reply["choices"][0]["text"] == expected


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_request_of_the_readme_is_answered(url: str) -> None:
    (command,) = re.findall(r"^\| curl \| `(.*)` \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    reply = json.loads(_ran("sh", "-c", command.replace(ADDRESS.replace("127.0.0.1", "localhost")[7:], url)))
    assert reply["usage"]["completion_tokens"] == 16 or reply["choices"][0]["finish_reason"] == "stop"


def test_the_table_has_every_parameter() -> None:
    table = TEXT.partition("\n## Parameters\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| .* \|$", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    fields = {*CompletionRequest.model_fields, *ChatRequest.model_fields}
    assert listed == fields - {"prompt", "messages"}
