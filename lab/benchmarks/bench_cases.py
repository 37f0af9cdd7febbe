"""The cases of `drafter bench` on a real pair: ours in each mode over a relay, llama-server and vLLM with their drafts.

Method. Five sides on this machine, of which one at a time writes: the target alone, `remote` and `auto` by a `drafter
serve` whose verifier is behind a relay with `--rtt` ms of round trip; llama-server with the same two files, which looks
up in the text, and else drafts three tokens by the model (the best of its settings with such a draft model,
`lab.benchmarks.llama_server`); vLLM with its n-gram speculation on the same weights, if `--vllm` names them. The target
has one thread in each, the draft model another. Options that are not below are `drafter bench`'s own, which keeps its
records in `--output`; `--resume` is not needed, the same command goes on:

    python -m lab.benchmarks.bench_cases --target BF16.gguf --draft SMALL.gguf --vllm FOLDER --output FOLDER
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import need, parser_of
from lab.benchmarks.llama_server.build import built_or_exit
from lab.benchmarks.llama_server.settings import settings, shared_flags
from lab.benchmarks.vllm.comparison import NGRAM, VLLM, ready, server
from specpair.child_processes.children import child
from specpair.child_processes.serving import verifier

MODES = {"target": "off", "remote": "remote", "auto": "auto"}  # sides of ours
_TOOLS = {"--tool-call-parser": "hermes", "--enable-auto-tool-choice": ""}  # of Qwen2.5
AT_ONCE = 4  # texts, of the cases that ask for most
_SETTING = "ngram-map-k 3/8, draft-simple 3, draft"
FLAGS = {
    "target": {"required": True, "help": "GGUF file"},
    "draft": {"required": True, "help": "GGUF file of the draft model"},
    "vllm": {"metavar": "FOLDER", "help": "the target in Hugging Face layout"},
    "python": {"default": ".venv-vllm/bin/python", "help": "of the environment of requirements/vllm.txt"},
    **{"rtt": 20.0, "context": 4096},
    "port": {"default": 8400, "help": "the first of three (default: %(default)s)"},
}


def main() -> int:
    options, others = parser_of(__doc__, FLAGS).parse_known_args()
    need("llama_cpp")
    with ExitStack() as stack:
        ours = stack.enter_context(_ours(options))
        urls = {**dict.fromkeys(MODES, ours), "llama-server": stack.enter_context(_llama_server(options))}
        if options.vllm:
            urls["vllm"] = stack.enter_context(_vllm(options))
        sides = [part for name, url in urls.items() for part in ("--side", f"{name}={url}/v1")]
        for name, mode in MODES.items():
            sides += ["--extra", f"{name}={json.dumps({'speculative': {'mode': mode}})}"]
        return subprocess.run(
            [sys.executable, "-m", "drafter_client", "bench", *sides, *others], check=False
        ).returncode


@contextmanager
def _ours(options: Namespace) -> Iterator[str]:
    """A verifier, a relay and `drafter serve`, while the block lasts; yields the URL of the last."""
    engine = {"model": options.target, "context": options.context, "slots": AT_ONCE, "threads": 1}
    with verifier(**engine) as near, relay(near.url, options.rtt) as far, tempfile.TemporaryFile("w+") as log:
        port = options.port
        flags = {"verifier": far, "port": port, "draft-model": options.draft, "texts": AT_ONCE, "threads": 1}
        arguments = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        with child(
            *("-m", "drafter_client", "serve", *arguments), stdout=log.fileno(), stderr=subprocess.STDOUT
        ) as process:
            yield _when_ready(f"http://127.0.0.1:{port}", "ready", process, log)


@contextmanager
def _llama_server(options: Namespace) -> Iterator[str]:
    [setting] = [each for each in settings({"draft": Path(options.draft)}, [3]) if each.name == _SETTING]
    port, context = options.port + 1, AT_ONCE * options.context  # which the slots share
    flags = [*shared_flags(Path(options.target), context, 1), *setting.flags, "--parallel", str(AT_ONCE)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_")}
    listens = ("--host", "127.0.0.1", "--port", str(port), "--jinja")
    with (
        tempfile.TemporaryFile("w+") as log,
        child("-x", str(built_or_exit()), *listens, *flags, environment=environment, stdout=log.fileno(),
              stderr=subprocess.STDOUT) as process,
    ):  # fmt: skip
        yield _when_ready(f"http://127.0.0.1:{port}", "health", process, log)


@contextmanager
def _vllm(options: Namespace) -> Iterator[str]:
    engine = Namespace(
        model=options.vllm, python=options.python, context=options.context, dtype="bfloat16", port=options.port + 2
    )
    flags = {"--speculative-config": NGRAM, "--max-num-seqs": str(AT_ONCE), **_TOOLS}
    with server(engine, VLLM, flags) as url:
        yield url


def _when_ready(url: str, path: str, process: "subprocess.Popen[str]", log: IO[str]) -> str:
    """`url`, when it is ready. Raises RuntimeError with the log if the process ends before."""
    if not ready(f"{url}/{path}", process):
        log.seek(0)
        raise RuntimeError(f"{path} of {url} was never answered; the log ends with\n{log.read()[-3000:]}")
    return url


if __name__ == "__main__":
    sys.exit(main())
