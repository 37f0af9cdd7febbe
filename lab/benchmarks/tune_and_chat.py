"""How well the gain that `drafter tune` measures foretells the gain of the chat that follows.

Method. `tune` measures the draft model, as `drafter join` does. Then a chat of ten answers of up to 64 tokens is
written by turns with the target alone and in the mode that gained most; both read the same conversation, and the
target's answer goes on in it. The gain of the chat is that of the seconds of a token in all its answers, prompts
included. Start the verifier first, with real models.

    python -m lab.benchmarks.tune_and_chat --draft DRAFT.gguf [--verifier http://127.0.0.1:8000] [--threads 1]
"""

from pathlib import Path

from drafter_client.draft_sources import DraftModel, Source
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from drafter_client.tuning import DraftCandidate, tune
from lab.benchmarks.harness.report import Report, options_of
from specpair.engines.load_options import LoadOptions

FLAGS = {
    "verifier": "http://127.0.0.1:8000",
    "draft": {"type": Path, "required": True, "help": "a GGUF file"},
    "threads": 1,
}
QUESTIONS = (
    "What is a queue, in two sentences?",
    "Write it in Python with a list.",
    "Now with collections.deque.",
    "Which of the two is faster, and why?",
    "Write a test for it.",
    "How would I make it safe for threads?",
    "Show that as code.",
    "What is a priority queue?",
    "Name three uses of one.",
    "Sum up what we said in two sentences.",
)
ANSWER = 64  # tokens


def _seconds(stats: Stats) -> float:
    return stats.working_time / max(1, stats.generated_tokens)


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("tune_and_chat", options)

    def make(source: Source) -> Pair:
        return Pair(options.verifier, source)

    source = DraftModel(options.draft, engine=LoadOptions(threads=options.threads))
    tuned = tune("the target", [DraftCandidate(options.draft.stem, source, 0)], make, report.line)
    report.line(str(tuned))
    (measured,) = tuned.measured
    modes = (Mode.TARGET, measured.mode)
    times: dict[Mode, list[float]] = {mode: [] for mode in modes}
    with make(source) as pair:
        talk: list[dict[str, str]] = []
        for number, question in enumerate(QUESTIONS):
            talk.append({"role": "user", "content": question})
            ids, answer = pair.chat(talk), ""
            for mode in modes if number % 2 == 0 else modes[::-1]:
                with pair.generate(ids, Options(max_tokens=ANSWER, mode=mode)) as generation:
                    text = generation.read()
                times[mode].append(_seconds(text.stats))
                answer = text.text if mode is Mode.TARGET else answer
            talk.append({"role": "assistant", "content": answer})
    alone, drafted = (times[mode] for mode in modes)
    ratios = [one / other for one, other in zip(alone, drafted, strict=True)]
    gain = sum(alone) / sum(drafted)
    spread = f"{gain:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    report.line(f"chat: {spread}; tune over chat: {measured.gain / gain:.2f}")
    report.save()


if __name__ == "__main__":
    main()
