"""How many draft tokens of its head a model accepts at temperature 0, on llama.cpp.

Method. The prompts are the first `--length` tokens of the files that the shipped models were not trained on
(`models.training.corpus.HELD_OUT`). The model continues each by `--tokens` tokens, in rounds: the head drafts k tokens,
one pass of the target verifies them. Printed for each k in `--drafts`: the acceptance rate, the mean acceptance length,
the share of rounds that accept the first 1, 2, … draft tokens, and how many texts equal the target's own. The rounds
with the most draft tokens become a profile, which `agreement` of the simulator's key `head` names.

    python -m lab.benchmarks.head_acceptance [--model MODEL.gguf] [--drafts 1 2 3]
"""

import ctypes
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from llama_cpp import llama_cpp_ext as ext
from numpy.typing import NDArray

from backends.llama_cpp.library import lib
from lab.benchmarks.agreement_profile import write_profile
from lab.benchmarks.harness.report import Report, options_of
from lab.simulator.virtual.agreement import Counts, ProfileFile
from models.heads import make_head_model
from models.training.corpus import HELD_OUT

FLAGS = {
    "model": {"metavar": "FILE", "help": "a GGUF file with one head (default: the default target with its head)"},
    "drafts": [1, 2, 3],
    "name": {"default": "stdlib-head", "help": "of the profile (default: %(default)s)"},
    **{"length": 60, "tokens": 100, "threads": 1},
}
Hidden = NDArray[np.float32]


class Rounds(NamedTuple):
    """One text: its ids; of each round the draft tokens, and how many of them the target accepted."""

    text: list[int]
    drafts: list[list[int]]
    accepted: list[int]


class NextnContext:
    """One sequence in a context of llama.cpp: the target's, or that of its head if `target` is given."""

    def __init__(self, model: Any, options: Any, target: "NextnContext | None" = None, kept_states: int = 0) -> None:
        """`kept_states`: tokens that a hybrid target can take back."""
        parameters = lib.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch = options.length + options.tokens + 64, options.length + 64
        parameters.n_threads = parameters.n_threads_batch = options.threads
        parameters.n_rs_seq = kept_states
        if target is not None:
            parameters.ctx_type, parameters.ctx_other = lib.LLAMA_CONTEXT_TYPE_MTP, target.context
        self.context: Any = lib.llama_init_from_model(model, parameters)
        self.width: int = lib.llama_model_n_embd_out(model)
        self._vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        # A target gives the state of every token; the third argument limits a head to tokens with logits.
        ext.llama_set_embeddings_nextn(self.context, True, target is not None)

    def feed(self, tokens: Sequence[int], start: int, hidden: Hidden | None = None, *, logits: bool = True) -> None:
        """Run one pass over the tokens from position `start` on. A head takes `hidden` of the token before each."""
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index], batch.pos[index], batch.logits[index] = token, start + index, logits
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        if hidden is not None:
            batch.embd = hidden.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        status = lib.llama_decode(self.context, batch)
        batch.embd = None  # the array's memory, which llama_batch_free would free
        lib.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def picks(self, count: int) -> list[int]:
        """The most likely tokens after each of the `count` tokens of the last pass."""
        logits = np.ctypeslib.as_array(lib.llama_get_logits(self.context), (count, self._vocabulary))
        return [int(token) for token in logits.argmax(axis=1)]

    def hidden(self, count: int) -> Hidden:
        """The hidden states of the `count` tokens of the last pass, a copy."""
        return np.ctypeslib.as_array(ext.llama_get_embeddings_nextn(self.context), (count, self.width)).copy()

    def cut(self, position: int) -> None:
        """Forget all tokens from the position on."""
        if not lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), 0, position, -1):
            raise RuntimeError(f"the model cannot take back the tokens from {position} on")


def generated(model: Any, prompt: Sequence[int], drafted: int, options: Any) -> Rounds:
    """Continue the prompt by `options.tokens` tokens, with `drafted` draft tokens of the head a round; 0: no head."""
    hybrid = lib.llama_model_is_hybrid(model)
    target = NextnContext(model, options, kept_states=drafted if hybrid else 0)
    head = NextnContext(model, options, target) if drafted else None
    before = np.zeros((1, target.width), np.float32)  # the hidden state of the last token that the target has read
    tokens, start, rounds = list(prompt), 0, Rounds([], [], [])
    draft: list[int] = []
    while len(rounds.text) < options.tokens:
        target.feed(tokens, start)
        picks, states = target.picks(len(tokens)), target.hidden(len(tokens))
        if head is not None:  # reads what the target has read, each token with the state of the token before
            head.feed(tokens, start, np.concatenate([before, states[:-1]]), logits=False)
        accepted = next((at for at, token in enumerate(draft) if picks[at] != token), len(draft))
        kept = len(tokens) - len(draft) + accepted  # tokens of this pass that belong to the text
        if start:
            rounds.drafts.append(draft)
            rounds.accepted.append(accepted)
        rounds.text.extend(picks[kept - 1 - accepted : kept])
        before, start = states[kept - 1 : kept], start + kept
        target.cut(start)
        draft = []
        if head is not None:
            head.cut(start)
            draft = _draft(head, rounds.text[-1], start, before, drafted)
        tokens = [rounds.text[-1], *draft]
    for context in (head, target):
        if context is not None:
            lib.llama_free(context.context)
    return rounds._replace(text=rounds.text[: options.tokens])


def _draft(head: NextnContext, token: int, position: int, before: Hidden, count: int) -> list[int]:
    """`count` tokens after `token`; the first follows from the target's hidden state, the next ones from the head's."""
    draft: list[int] = []
    for offset in range(count):
        head.feed([token], position + offset, before)
        [token], before = head.picks(1), head.hidden(1)
        draft.append(token)
    head.cut(position)  # the head reads these tokens again, with the target's hidden states
    return draft


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The model of a file with its heads. Ends the program for a file without exactly one."""
    parameters = lib.llama_model_default_params()
    parameters.load_mtp = True
    model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    if not model or lib.llama_model_n_layer_nextn(model) != 1:
        raise SystemExit(f"head_acceptance: {path} is no model with one head")
    yield model
    lib.llama_model_free(model)


def prompts(model: Any, length: int) -> list[list[int]]:
    """The first `length` tokens of each held-out file that has so many."""
    library, vocabulary = Path(sysconfig.get_path("stdlib")), lib.llama_model_get_vocab(model)
    found = []
    for name in sorted(HELD_OUT):
        raw = (library / name).read_bytes()
        buffer = (lib.llama_token * (len(raw) + 1))()
        count = lib.llama_tokenize(vocabulary, raw, len(raw), buffer, len(buffer), True, False)
        found += [list(buffer[:length])] if count >= length else []
    return found


def main() -> None:
    """Run the experiment."""
    options = options_of(__doc__, FLAGS, "llama_cpp")
    with TemporaryDirectory() as folder:
        path = Path(options.model) if options.model else Path(folder) / "stdlib.gguf"
        if not options.model:
            make_head_model("stdlib", path)
        report = Report("head_acceptance", options)
        with opened(path) as model:
            chosen = prompts(model, options.length)
            plain = [generated(model, prompt, 0, options).text for prompt in chosen]
            for drafted in options.drafts:
                texts = [generated(model, prompt, drafted, options) for prompt in chosen]
                counts = np.array([count for text in texts for count in text.accepted])
                depths = " ".join(f"{np.mean(counts > depth):.2f}" for depth in range(drafted))
                same = sum(text.text == own for text, own in zip(texts, plain, strict=True))
                report.line(
                    f"k = {drafted}: acceptance rate {counts.mean() / drafted:.3f}, mean acceptance length"
                    f" {1 + counts.mean():.2f}, first tokens {depths}; {same} of {len(texts)} texts are the target's"
                )
                if drafted == max(options.drafts):
                    accepted = [int(np.sum(counts > depth)) for depth in range(drafted)]
                    profile = Counts(judged=[len(counts), *accepted[:-1]], accepted=accepted)
        report.save()
    write_profile(
        options, ProfileFile(target=path.stem, draft="its head", measured=report.head, kinds={"code": profile})
    )


if __name__ == "__main__":
    main()
