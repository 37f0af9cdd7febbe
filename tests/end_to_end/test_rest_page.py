"""The samples of docs/rest.md have the fields of the replies: its requests are sent, in their order, as they stand."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from models import DEFAULT_DRAFT
from tests.drafter_client.support import running
from tests.paths import ROOT
from verifier_server.settings import Settings

PAGE = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8").partition("\n## Rules\n")[0]
BLOCKS = re.findall(r"^```(?:json)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MORE = "…"  # among the fields of a sample: the reply has more of them


def _documents(text: str) -> list[Any]:
    """The JSON objects of a reply or a sample, which may be server-sent events."""
    rest = re.sub("^(event: .*|:.*|data: )", "", text, flags=re.MULTILINE).strip()
    found = []
    while rest:
        document, end = json.JSONDecoder(strict=False).raw_decode(rest)  # a sample may break a line in a text
        found.append(document)
        rest = rest[end:].strip()
    return found


def _alike(sample: Any, reply: Any) -> bool:
    """Whether both have the same fields, at every depth."""
    if isinstance(sample, list) and isinstance(reply, list) and any(isinstance(each, dict) for each in sample):
        return len(sample) == len(reply) and all(map(_alike, sample, reply))
    if not isinstance(sample, dict) or not isinstance(reply, dict):
        return isinstance(sample, dict) == isinstance(reply, dict)
    names = sample.keys() - {MORE}
    same = names <= reply.keys() if MORE in sample else names == reply.keys()
    return same and all(_alike(sample[name], reply[name]) for name in names)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_samples_have_the_fields_of_the_replies() -> None:
    compared = 0
    with running(Settings(slots=4, context=256, threads=1, draft_model=DEFAULT_DRAFT)) as verifier:
        for request, sample in zip(BLOCKS, [*BLOCKS[1:], "curl"], strict=True):
            if "curl" not in request:
                continue
            command = request.replace("http://127.0.0.1:8000", verifier.url)
            ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
            if "curl" in sample:  # another request: this one has no sample
                continue
            replies, samples = _documents(ran.stdout), _documents(sample.replace(f",{MORE}", f',"{MORE}":0'))
            for each in samples:
                assert any(_alike(each, reply) for reply in replies), (each, replies)
            assert _alike(samples[-1], replies[-1]), (samples[-1], replies[-1])
            compared += 1
    assert compared > 10
