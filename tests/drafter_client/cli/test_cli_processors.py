"""Flags of logit processors: they reach the text in every command, are reported, and bad values are refused."""

import json

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import Verifier
from tests.specpair.speculation import processed

PROMPT = "def f(x):"
PROCESSORS = ["--min-p", "0.02", "--presence-penalty", "0.5", "--frequency-penalty", "1", "--repetition-penalty", "1.1"]
PROCESSORS += ["--logit-bias", "101=6.5", "--logit-bias", "102=-100", "--temperature", "0.9", "--seed", "4"]
TEXT = ["--prompt", PROMPT, "--max-tokens", "24"]
SAMPLING = Sampling(
    *(4, 0.9, 0, 1.0),
    min_p=0.02,
    presence_penalty=0.5,
    frequency_penalty=1.0,
    repetition_penalty=1.1,
    logit_bias={101: 6.5, 102: -100.0},
)
REPORTED = {
    "min_p": 0.02,
    "presence_penalty": 0.5,
    "frequency_penalty": 1.0,
    "repetition_penalty": 1.1,
    "logit_bias": {"101": 6.5, "102": -100.0},
}


def _expected() -> list[int]:
    model = ScriptedBackend(Script(seed=1))
    return processed.plain(model.logits_after, model.vocabulary.encode(PROMPT), 24, SAMPLING)


def _commands(verifier: Verifier) -> dict[str, list[str]]:
    there = ["--verifier", verifier.url]
    return {
        "pair": [*there, "--backend", "scripted", "--draft-model", "1"],
        "target": [*there, "--mode", "target"],
        "solo server": ["solo", "server", *there],
        "solo": ["solo", "--backend", "scripted", "--model", "1"],
    }


@pytest.mark.parametrize("command", ["pair", "target", "solo server", "solo"])
def test_each_command_has_the_processors(drafter: Command, verifier: Verifier, command: str) -> None:
    ran = drafter(*_commands(verifier)[command], *TEXT, *PROCESSORS, "--json")
    assert (ran.status, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert report["token_ids"] == _expected()
    plain = {"seed": 4, "temperature": 0.9, "top_k": 0, "top_p": 1.0}
    told = {} if command == "solo" else {"strategy": "coupled", "noise": "gumbel-1"}
    assert report["sampling"] == plain | told | REPORTED


@pytest.mark.parametrize("command", ["pair", "solo"])
def test_a_bias_of_an_unknown_id_is_refused(drafter: Command, verifier: Verifier, command: str) -> None:
    ran = drafter(*_commands(verifier)[command], *TEXT, "--logit-bias", "999=1")
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "999" in ran.err and "token id" in ran.err
