"""The help texts, whole: what a user reads is decided here and not by accident. Line breaks are the terminal's."""

import re

import pytest

from drafter_client.arguments import drafter_parser
from tests.drafter_client.command_line import Command

ENGINE = """
--context TOKENS tokens of context (default: as trained, up to 4096)
--threads N CPU threads (default: from the machine)
--gpu-layers N layers on the GPU; -1: all (default)
--device NAME torch: cpu, cuda, mps, neuron (default: the best there is)
--dtype {float32,bfloat16,float16} torch, mlx: number type (default: by the device; mlx: as stored)
--compile torch: compile for all shapes first
--tensor-parallel N torch, neuron_legacy: devices that share the model
"""
PROMPT = """
prompt:
--prompt TEXT the text to continue; without it, standard input is read
"""
MANY = """
--prompt-file FILE many prompts: one a line, or JSON Lines if it ends in .jsonl
many prompts:
--concurrency N texts at a time (default: 1)
--output FILE write results there, as JSON Lines; run it again to go on
"""
ACCEPTANCE = """acceptance:
--strategy {coupled,deterministic,greedy,probabilistic,threshold}
rule by which drafts are accepted (default: coupled)
--threshold P of the strategy of that name: take drafts that the target gives more than this (lossy)
--verbose show the decision on each token
"""
SAMPLING = """
sampling:
--temperature T 0: greedy (default)
--top-p P nucleus mass (default: off)
--top-k K most likely tokens only; 0: off (default)
--seed S the same seed gives the same text (default: drawn, and reported)
"""
OUTPUT = """
output:
--json one JSON object a text on standard output, nothing else there
--no-stream print the text at the end
"""
VERIFIER = """verifier:
--verifier URL (default: http://127.0.0.1:8000)
--api-key KEY its key, if it wants one (or DRAFTER_API_KEY)
--patience SECONDS how long to wait for a verifier that went away; the text goes on when it is back (default: 300)
"""
DRAFTER = f"""
Generate text with a verifier: a small model here drafts, the large one there decides.
options:
-h, --help show this help message and exit
--mode {{remote,fused,target,auto}}
who drafts: this machine (remote, the default), the verifier (fused), nobody (target), or auto
--no-remember auto: neither use nor keep what each mode came to on earlier runs
--max-tokens N (default: 128)
--chat apply the target's chat template to the prompt
--system TEXT system message, with --chat
--baseline measure the target alone on the same prompt, too
--profile DIR write what happens into this folder; see 'report'
{VERIFIER}draft model:
--draft-model PATH (default: the small one)
--branches N continuations that it may follow at once, to be ready for corrections (default: 6)
--translate where the draft model has another vocabulary, draft through text
--no-lookup ask the draft model only; do not look drafts up in the text itself
--lockstep draft, send, wait: nothing side by side
--backend {{llama_cpp,torch,mlx,neuron_legacy,scripted,ngram}}
engine; ngram: no model, look the text up in itself (default: llama_cpp)
{ENGINE}--draft-n auto|N drafts a round (default: auto)
{PROMPT}{MANY}{SAMPLING}{ACCEPTANCE}{OUTPUT}
'drafter solo' runs one model by itself, 'drafter compare' tries every way, 'drafter report DIR' draws what --profile
has written: each has its own --help.
"""
SOLO = f"""
Run one model by itself, token by token, and say how long each token took.
positional arguments:
{{target,draft,server}}
target, draft: the shipped model, on this machine; server: the verifier's target (default: target)
options:
-h, --help show this help message and exit
--model PATH another model, on this machine
--max-tokens N (default: 128)
{VERIFIER}engine:
--backend {{llama_cpp,torch,mlx,neuron_legacy,scripted}} engine (default: llama_cpp)
{ENGINE}{PROMPT}{SAMPLING}{OUTPUT}
"""


def _words(text: str) -> str:
    return " ".join(text.split())


def test_help_of_the_pair(drafter: Command) -> None:
    ran = drafter("--help")
    usage, _, rest = ran.out.partition("\n\n")
    assert (ran.status, ran.err) == (0, "")
    assert usage.startswith("usage: drafter [-h] [--verifier URL]")
    assert _words(rest) == _words(DRAFTER)


def test_help_of_one_model_alone(drafter: Command) -> None:
    ran = drafter("solo", "--help")
    usage, _, rest = ran.out.partition("\n\n")
    assert (ran.status, ran.err) == (0, "")
    assert usage.startswith("usage: drafter solo [-h] [--model PATH]")
    assert _words(rest) == _words(SOLO)


def test_every_flag_is_in_the_usage(drafter: Command) -> None:
    usage = drafter("--help").out.partition("\n\n")[0]
    flags = {flag for action in drafter_parser()._actions for flag in action.option_strings if flag.startswith("--")}
    assert set(re.findall(r"--[a-z-]+", usage)) == flags - {"--help"}


def test_the_help_never_shows_a_key(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTER_API_KEY", "sesame")
    assert "sesame" not in drafter("--help").out
