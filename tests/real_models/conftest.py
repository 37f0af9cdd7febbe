"""The real pair: a verifier with deterministic logits in a process of its own, the drafter here."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from drafter_client import DraftModel, Generation, Mode, Options, Pair, Tokens
from drafter_client.serve.app import create_app
from scripts import real_models
from specpair.child_processes import serving
from specpair.child_processes.serving import Server
from specpair.engines.load_options import LoadOptions
from tests.gateway.openai_api.conftest import served

CONTEXT = 2048
TOKENS = 48
PROMPTS = {
    "code": "def quicksort(values: list[int]) -> list[int]:\n",
    "prose": "Why the sea is salty, explained for children. The rain falls on the hills, and",
}
SEED = 7


def body(prompt: str, temperature: float) -> dict[str, Any]:
    """What texts of these tests have in common, as the verifier takes it."""
    return {"prompt": PROMPTS[prompt], "max_tokens": TOKENS, "temperature": temperature, "seed": SEED}


def written(generation: Generation) -> list[int]:
    """The token ids of a text, generated to its end."""
    return [token.id for event in generation if isinstance(event, Tokens) for token in event.tokens]


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder of the models; fails with the command that fills it if one is missing."""
    found = Path(os.environ["REAL_MODELS"])
    for model in (real_models.TARGET, real_models.DRAFT, real_models.FOREIGN):
        if not (found / model.name).is_file():
            pytest.fail(f"{found / model.name} is missing: .venv/bin/python -m scripts.real_models {found}")
    return found


@pytest.fixture(scope="session")
def target(folder: Path) -> dict[str, Any]:
    """Settings of a verifier whose logits do not depend on the width of a pass."""
    model = folder / real_models.TARGET.name
    return {"model": model, "context": CONTEXT, "slots": 2, "threads": 1, "deterministic": True}


@pytest.fixture(scope="session")
def draft(folder: Path) -> DraftModel:
    return DraftModel(folder / real_models.DRAFT.name, engine=LoadOptions(threads=1))


@pytest.fixture(scope="session")
def verifier(target: dict[str, Any], folder: Path) -> Iterator[Server]:
    """The target, with the draft model beside it for mode fused."""
    with serving.verifier(**target, draft_model=folder / real_models.DRAFT.name, draft_threads=1) as server:
        yield server


@pytest.fixture(scope="session")
def pair(verifier: Server, draft: DraftModel) -> Iterator[Pair]:
    with Pair(verifier.url, draft, texts=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def ends(verifier: Server, draft: DraftModel) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of the verifier's own endpoint, and of `drafter serve`, which closes the pair it gets."""
    own = Pair(verifier.url, draft, texts=2)
    with (
        served(create_app(own, Options(mode=Mode.REMOTE, draft_n=4), texts=2, queue=2)) as url,
        httpx.Client(base_url=verifier.url, timeout=300, trust_env=False) as large,
        httpx.Client(base_url=url, timeout=300, trust_env=False) as both,
    ):
        yield large, both


@pytest.fixture(scope="session")
def own_text(pair: Pair, verifier: Server) -> Callable[[str, float], list[int]]:
    """The target's own text: token by token, without a draft. Each is generated once."""
    assert pair.target.vocabulary.size > 150_000, "it is loaded"
    known: dict[tuple[str, float], list[int]] = {}

    def generate(prompt: str, temperature: float) -> list[int]:
        key = prompt, temperature
        if key not in known:
            reply = httpx.post(f"{verifier.url}/generate", json=body(prompt, temperature), timeout=300)
            known[key] = reply.raise_for_status().json()["token_ids"]
        return known[key]

    return generate
