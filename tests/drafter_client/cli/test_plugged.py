"""Drafters and engines of other distributions, chosen by --backend."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpair.plugins import BACKENDS, DRAFTERS
from tests.distributions import distribute
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier

DRAFTER = """
from backends.scripted import load
from drafter_client import Expansion, Proposal

class Repeating:
    width = 1

    def __init__(self, vocabulary, sampling):
        self.size = vocabulary.size

    def expand(self, text, tails, runners_up):
        return Expansion([Proposal(text[-1], 0.9) for _ in tails], 1)

class Failing(Repeating):
    def expand(self, text, tails, runners_up):
        raise LookupError("no such word")

class Wrong(Repeating):
    def expand(self, text, tails, runners_up):
        return []

def unmade(vocabulary, sampling):
    raise ValueError("no vocabulary for me")
"""
NAMES = {"repeating": "Repeating", "failing": "Failing", "wrong": "Wrong", "unmade": "unmade", "ngram": "unmade"}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    groups = {
        DRAFTERS: {name: f"toy_drafter:{made}" for name, made in NAMES.items()} | {"lost": "no_such_module:make"},
        BACKENDS: {"scripted2": "toy_drafter:load"},
    }
    distribute(tmp_path, "toy-drafter", "0.3", groups, DRAFTER)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("toy_drafter", None)


def _flags(verifier: Verifier, backend: str, *more: str) -> list[str]:
    text = ("--prompt", "def f(x):", "--max-tokens", "24", "--lockstep", "--draft-n", "2")
    return ["--verifier", verifier.url, "--backend", backend, *text, *more]


def test_drafter_of_another_distribution_drafts(drafter: Command, verifier: Verifier) -> None:
    alone = drafter("--verifier", verifier.url, "--mode", "target", "--prompt", "def f(x):", "--max-tokens", "24")
    ran = drafter(*_flags(verifier, "repeating", "--stats"))
    assert (ran.status, ran.out) == (0, alone.out)
    assert "repeating of toy-drafter 0.3 drafts for scripted" in ran.err


def test_engine_of_another_distribution_runs_a_draft_model(drafter: Command, verifier: Verifier) -> None:
    ran = drafter(*_flags(verifier, "scripted2", "--draft-model", "1", "--stats"))
    assert ran.status == 0 and "scripted-1 drafts for scripted" in ran.err
    assert drafter("solo", "--backend", "scripted2", "--model", "1", "--prompt", "x", "--max-tokens", "2").status == 0


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("failing", "failing of toy-drafter 0.3 failed: LookupError: no such word"),
        ("wrong", "wrong of toy-drafter 0.3 must return an Expansion with a proposal for each of 1 tails, not []"),
        ("unmade", "unmade of toy-drafter 0.3 failed: ValueError: no vocabulary for me"),
        ("lost", "lost of toy-drafter 0.3 cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_error_names_the_distribution(drafter: Command, verifier: Verifier, backend: str, message: str) -> None:
    ran = drafter(*_flags(verifier, backend))
    assert ran.status == 1 and ran.err.splitlines()[-1] == f"drafter: {message}"
    assert verifier.sessions == 0


def test_built_in_lookup_wins_over_a_drafter_of_the_same_name(drafter: Command, verifier: Verifier) -> None:
    assert drafter(*_flags(verifier, "ngram")).status == 0


def test_flags_of_a_model_do_not_go_with_it(drafter: Command, verifier: Verifier) -> None:
    for flag in (("--draft-model", "1"), ("--threads", "2"), ("--translate",)):
        ran = drafter(*_flags(verifier, "repeating", *flag))
        assert ran.status == 2
        assert f"{flag[0]}: --backend repeating drafts without a model, leave one of the two out" in ran.err
    assert drafter(*_flags(verifier, "repeating", "--no-lookup")).status == 0


def test_command_that_runs_a_model_passes_over_a_lasting_one(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTER_BACKEND", "repeating")
    ran = drafter("solo", "--print-config")
    assert ran.status == 0 and re.search(r"^backend +llama_cpp +", ran.out, re.MULTILINE), ran.out
    ran = drafter("solo", "--backend", "repeating", "--prompt", "x")
    assert ran.status == 2 and "--backend: no 'repeating'; choose one of llama_cpp, torch, mlx, " in ran.err
    ran = drafter("--backend", "abacus", "--prompt", "x")
    known = "llama_cpp, torch, mlx, neuron_legacy, ngram, scripted2, failing, lost, repeating, unmade, wrong"
    assert f"--backend: no 'abacus'; choose one of {known}" in ran.err
