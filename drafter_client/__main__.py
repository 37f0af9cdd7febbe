"""`python -m drafter_client`, also installed as `drafter`."""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import closing

from backends.contract import BackendError
from drafter_client.arguments import NGRAM, drafter_options, solo_parser
from drafter_client.baseline import run_baseline
from drafter_client.chat import chat_ids
from drafter_client.client import VerifierClient
from drafter_client.drafting import Drafting, drafting, load_model
from drafter_client.errors import BadPrompt, DrafterError
from drafter_client.loop import speculate
from drafter_client.readout import Readout
from drafter_client.solo import run_solo
from drafter_client.stats import Stats
from speculation import noise
from speculation.acceptance import Strategy
from speculation.errors import SpecPairError
from speculation.operation import LOCKSTEP, Mechanisms
from speculation.sampling import Sampling

SWITCH_INTERVAL = 0.0005  # seconds; at the default of 5 ms a thread that computes holds answers back that long
INTERRUPTED = 130  # exit status of a program ended by Ctrl-C


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 an error said on standard error, 2 bad flags, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        if arguments[:1] == ["solo"]:
            return _solo(solo_parser().parse_args(arguments[1:]))
        return _draft(drafter_options(arguments))
    except (SpecPairError, DrafterError, BackendError) as error:
        print(f"drafter: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndrafter: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has left, as in `drafter … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return 1


def _draft(options: argparse.Namespace) -> int:
    if options.system is not None:
        if not options.chat:
            raise BadPrompt("--system is a message of a chat: add --chat")
        _check_encoding("system message", options.system)
    prompt = _prompt(options)
    with closing(VerifierClient(options.verifier, api_key=options.api_key)) as client:
        client.wait_until_ready(on_wait=_show_progress())
        with drafting(options, client) as drafts:
            readout = Readout(drafts.vocabulary, as_json=options.json, stream=not options.no_stream)
            return _run(options, prompt, client, drafts, readout)


def _run(options: argparse.Namespace, prompt: str, client: VerifierClient, drafts: Drafting, readout: Readout) -> int:
    info = drafts.info
    if options.chat:
        prompt_ids = chat_ids(info.chat_template, drafts.vocabulary, prompt, options.system)
    else:
        prompt_ids = drafts.vocabulary.encode(prompt)
    _check_ids(prompt_ids)
    sampling = _sampling(options)
    request = {
        "max_tokens": options.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }
    stats = Stats(model=info.name, draft_model=drafts.name)
    run = speculate(
        client,
        drafts.drafter(sampling, Strategy.COUPLED),
        prompt_ids,
        request,
        info,
        stats,
        time.perf_counter,
        length=None if options.draft_n == "auto" else options.draft_n,
        mechanisms=LOCKSTEP if options.lockstep else Mechanisms(self_continue=info.self_continue),
        lookup=options.lookup and options.backend != NGRAM,
    )
    readout.begin()

    def work() -> None:
        with closing(run):  # releases the session, whatever happens
            for committed in run:
                readout.add(committed.tokens)
        if options.baseline:
            stats.baseline = run_baseline(client, prompt_ids, request, stats.token_ids, time.perf_counter)

    return _shown(work, readout, stats)


def _shown(work: Callable[[], None], readout: Readout, stats: Stats) -> int:
    """Do the work and show what came of it, also when it was interrupted or failed half-way."""
    status = 0
    failure: Exception | None = None
    try:
        work()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (SpecPairError, DrafterError, BackendError) as error:
        if not stats.token_ids:
            raise
        failure = error
    readout.end(stats)
    if failure is not None:
        raise failure
    return status


def _solo(options: argparse.Namespace) -> int:
    prompt = _prompt(options)
    with closing(load_model(options, options.model)) as backend:
        readout = Readout(backend.vocabulary, as_json=options.json, stream=not options.no_stream)
        stats = Stats(model=backend.model_name)
        prompt_ids = backend.vocabulary.encode(prompt)
        _check_ids(prompt_ids)
        run = run_solo(backend, prompt_ids, options.max_tokens, _sampling(options), stats, time.perf_counter)

        def work() -> None:
            with closing(run):
                for committed in run:
                    readout.add(committed)

        return _shown(work, readout, stats)


def _show_progress() -> Callable[[float | None], None]:
    """Say once that the verifier is loading, then its progress where it moved by a tenth."""
    said = -1

    def show(progress: float | None) -> None:
        nonlocal said
        tenth = int(10 * (progress or 0.0))
        if tenth > said:
            said = tenth
            print(f"drafter: the verifier is loading its model … {10 * tenth} %", file=sys.stderr)

    return show


def _prompt(options: argparse.Namespace) -> str:
    text: str
    if options.prompt is not None:
        text = options.prompt
        _check_encoding("prompt", text)
    elif options.prompt_file is not None:
        try:
            text = options.prompt_file.read_bytes().decode()
        except OSError as error:
            raise BadPrompt(f"the prompt file {options.prompt_file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadPrompt(f"the prompt file {options.prompt_file} is not UTF-8 text") from None
    elif sys.stdin is None or sys.stdin.isatty():
        raise BadPrompt("no prompt: give --prompt, --prompt-file, or pipe one into standard input")
    else:
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise BadPrompt("standard input is not UTF-8 text") from None
    if not text:
        raise BadPrompt("the prompt is empty: give at least one character to continue")
    return text


def _check_ids(prompt_ids: list[int]) -> None:
    """A vocabulary without a begin token that drops spaces leaves nothing of a prompt of spaces."""
    if not prompt_ids:
        raise BadPrompt("the prompt is empty, as the model reads it: give at least one character that is no space")


def _check_encoding(what: str, text: str) -> None:
    """Arguments that are no text in the terminal's encoding reach a program as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadPrompt(f"the {what} is not valid text in this terminal's encoding: use UTF-8") from None


def _sampling(options: argparse.Namespace) -> Sampling:
    seed = options.seed if options.seed is not None else secrets.randbelow(noise.SEED_LIMIT)
    return Sampling(seed, options.temperature, options.top_k, options.top_p)


if __name__ == "__main__":
    sys.exit(main())
