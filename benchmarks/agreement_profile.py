"""How often a draft model's tokens are the target's, by kind of text and position in the draft: a profile.

Method. The target writes up to `--tokens` tokens at temperature 0 behind each prompt: those of the cases that `drafter
bench` ships (code, extraction, editing, chat, problems with numbers), stories, and a conversation with tools; a model
without a chat template has the held-out Python files that the default pair was not trained on. A draft token is judged
when all before it in its draft are accepted, so its draft model has read the target's own text up to there. Therefore
one pass of the draft model over a finished text has the choice of every draft of that text. The drafts are those of a
drafter that waits for each reply: `--length` tokens, then the target's own token, then the next draft. `--drafted`
texts are drafted token by token, too, and the outcomes that differ are counted: passes of other widths may round
otherwise.

The profile is written as JSON, for `agreement` in the file of a simulation. It goes to `.cache/results/`, and with
`--save` to the folder of those that ship.

    python -m benchmarks.agreement_profile [--target TARGET.gguf --draft DRAFT.gguf --name NAME] [--save]
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from backends.registry import load
from benchmarks.harness.models import held_out_prompts
from benchmarks.harness.report import UNSAVED, Report, options_of
from drafter_client.bench.cases.reading import shipped_cases
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from simulator.virtual import agreement
from simulator.virtual.agreement import Judged, Profile, ProfileFile, counted
from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from specpair.openai_api.chat.prompt import chat_parts
from specpair.openai_api.chat.template import Renderer
from tests.real_models.conversation import SYSTEM, TOOLS, TURNS

FLAGS = {
    "target": {"help": "GGUF file (default: of the pair that ships)"},
    "draft": {"help": "GGUF file (default: of the pair that ships)"},
    "name": {"default": "stdlib", "help": "of the profile (default: %(default)s)"},
    "texts": {"default": 16, "help": "of each kind, at most (default: %(default)s)"},
    "tokens": {"default": 192, "help": "of each text, at most (default: %(default)s)"},
    "length": {"default": 16, "help": "draft tokens (default: %(default)s)"},
    "drafted": {"default": 1, "help": "texts of each kind that are drafted token by token (default: %(default)s)"},
}
_CASES = {"code": ("code", "humaneval"), "extraction": ("extraction",), "editing": ("editing",), "numbers": ("gsm8k",)}
_STORIES = (
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Tell a story of two friends who cross a desert.",
    "Write the first page of a novel that begins in a railway station at night.",
    "Tell a fairy tale about a clock that was never late.",
    "Write a story about a violin maker and her last customer.",
    "Write a story in which a storm changes a village.",
    "Tell how an old dog found its way home.",
    "Write a short story about the first winter on another planet.",
)
_CONTEXT = 2048
_SLOTS = 8
_PASS = 256  # tokens
Message = dict[str, Any]


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("agreement_profile", options, f"agreement_profile_{options.name}")
    target_path, draft_path = Path(options.target or DEFAULT_TARGET), Path(options.draft or DEFAULT_DRAFT)
    judged: list[Judged] = []
    with (
        closing(_load(target_path)) as target,
        closing(_load(draft_path)) as draft,
        closing(Renderer()) as renderer,
    ):
        below = min(target.vocabulary.size, draft.vocabulary.size)
        if draft.vocabulary.fingerprint_below(below) != target.vocabulary.fingerprint_below(below):
            raise SystemExit("the two models have unlike vocabularies")
        for kind, prompts in _prompts(target, renderer, options.texts):
            written = [text for group in _groups(prompts) for text in _written(target, group, options.tokens)]
            differ = drafted = 0
            before = len(judged)
            for number, (prompt, tokens) in enumerate(written):
                agrees = _agrees(draft, prompt, tokens)
                chains = [*_judged(kind, agrees, options.length)]
                if number < options.drafted:
                    real = dict(_drafted(draft, kind, prompt, tokens, options.length))
                    both = [(each.accepted, real[place].accepted) for place, each in chains if place in real]
                    drafted += len(both)
                    differ += sum(one != other for one, other in both)
                judged += [each for _, each in chains]
            report.line(_line(kind, len(written), judged[before:], drafted, differ))
    counts = counted(judged)
    report.line("", "share of accepted draft tokens by position, those before it accepted")
    law = Profile.of_counts(counts)
    for kind in law.kinds:
        shares = " ".join(f"{law.chance(position, kind):.3f}" for position in range(options.length))
        report.line(f"{kind or 'all':12}{shares}")
    report.save()
    _write(options, ProfileFile(target=target_path.stem, draft=draft_path.stem, measured=report.head, kinds=counts))


def _load(path: Path) -> Backend:
    return load("llama_cpp", LoadOptions(model=path, context_length=_CONTEXT, slots=_SLOTS))


def _prompts(target: Backend, renderer: Renderer, most: int) -> Iterator[tuple[str, list[list[int]]]]:
    """Prompts by kind of text. A conversation's later turns have the answers of the target before them."""
    vocabulary, template = target.vocabulary, target.chat_template
    if template is None:
        yield "code", [vocabulary.encode(text) for text in held_out_prompts(most)]
        return

    def asked(messages: Sequence[Message], tools: Sequence[Message] = ()) -> list[int]:
        variables: Mapping[str, Any] = {"tools": [*tools]} if tools else {}
        return vocabulary.encode_parts(chat_parts(template, vocabulary, messages, renderer, variables))

    cases = shipped_cases()
    for kind, names in _CASES.items():
        texts = [prompt.cut_to(None) for name in names for prompt in cases[name].case.prompts][:most]
        yield kind, [vocabulary.encode(t) if kind == "code" else asked([_said("user", t)]) for t in texts]
    yield "story", [asked([_said("user", text)]) for text in _STORIES[:most]]
    yield "chat", [*_conversations(target, asked, most)]
    yield "tools", [*_tool_prompts(asked, most)]


def _conversations(target: Backend, asked: Any, most: int) -> Iterator[list[int]]:
    chat, left = shipped_cases()["chat"].case, most
    for prompt in chat.prompts:
        messages = [_said("system", chat.system or "")]
        for turn in prompt.turns or ():
            if not left:
                return
            messages.append(_said("user", turn))
            ids = asked(messages)
            yield ids
            left -= 1
            ((_, answer),) = _written(target, [ids], 160)
            ends = target.vocabulary.ends
            text = target.vocabulary.decode([token for token in answer if token not in ends])
            messages.append(_said("assistant", text.decode(errors="replace")))


def _tool_prompts(asked: Any, most: int) -> Iterator[list[int]]:
    """Each turn's question, and the question with its tool's result."""
    messages = [_said("system", SYSTEM)]
    for turn in TURNS[: most // 2]:
        messages.append(_said("user", turn.question))
        yield asked(messages, TOOLS)
        arguments = json.dumps({"asked": turn.words})
        call = {"type": "function", "id": "call", "function": {"name": turn.tool, "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "call", "content": turn.result})
        yield asked(messages, TOOLS)
        messages.append(_said("assistant", turn.result))


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _groups(prompts: Sequence[list[int]]) -> Iterator[Sequence[list[int]]]:
    return (prompts[at : at + _SLOTS] for at in range(0, len(prompts), _SLOTS))


def _written(target: Backend, prompts: Sequence[list[int]], most: int) -> list[tuple[list[int], list[int]]]:
    """Prompts, each with what the target writes behind it, up to its end. At most one for each slot."""
    texts = [[*prompt] for prompt in prompts]
    for slot, text in enumerate(texts):
        target.release(slot)
        text += _choices(target, slot, 0, text, last=1)
    under_way = set(range(len(texts)))
    while under_way:
        for slot in [*under_way]:
            if texts[slot][-1] in target.vocabulary.ends or len(texts[slot]) == len(prompts[slot]) + most:
                under_way.remove(slot)
        batch = [Entry(slot, len(texts[slot]) - 1, texts[slot][-1:], 0) for slot in sorted(under_way)]
        if batch:
            for entry, rows in zip(batch, target.extend(batch), strict=True):
                texts[entry.slot].append(int(np.argmax(rows[0])))
    return [(prompt, text[len(prompt) :]) for prompt, text in zip(prompts, texts, strict=True)]


def _choices(backend: Backend, slot: int, start: int, tokens: Sequence[int], last: int | None = None) -> list[int]:
    """The likeliest token behind each of the `last` of `tokens`, or of all; the first of them stands at `start`."""
    skipped = 0 if last is None else len(tokens) - last
    chosen: list[int] = []
    for at in range(0, len(tokens), _PASS):
        part = [*tokens[at : at + _PASS]]
        rows = backend.extend([Entry(slot, start + at, part, min(max(skipped - at, 0), len(part)))])[0]
        chosen += np.argmax(rows, axis=1).tolist() if len(rows) else []
    return chosen


def _agrees(draft: Backend, prompt: Sequence[int], tokens: Sequence[int]) -> list[bool]:
    """For each of the target's tokens, whether the draft model, having read all before it, chooses it, too."""
    draft.release(0)
    chosen = _choices(draft, 0, 0, [*prompt, *tokens[:-1]], last=len(tokens))
    return [choice == token for choice, token in zip(chosen, tokens, strict=True)]


def _judged(kind: str, agrees: Sequence[bool], length: int) -> Iterator[tuple[int, Judged]]:
    """What is judged of drafts of `length` tokens, each with its place in the text. The first token comes with the
    prompt's reply, without a draft."""
    at = 1
    while at < len(agrees):
        accepted = 0
        for agreed in agrees[at : at + length]:
            yield at + accepted, Judged(kind, accepted, agreed)
            if not agreed:
                break
            accepted += 1
        at += accepted + 1


def _drafted(
    draft: Backend, kind: str, prompt: Sequence[int], tokens: Sequence[int], length: int
) -> Iterator[tuple[int, Judged]]:
    """As `_judged`, from drafts that are made token by token."""
    draft.release(0)
    at, held, text = 1, 0, [*prompt, *tokens]
    while at < len(tokens):
        known = len(prompt) + at
        token = _choices(draft, 0, held, text[held:known], last=1)[0]
        held, accepted = known, 0
        for truth in tokens[at : at + length]:
            yield at + accepted, Judged(kind, accepted, token == truth)
            if token != truth:
                break
            (token,) = _choices(draft, 0, known + accepted, [token])
            accepted += 1
        at += accepted + 1


def _line(kind: str, texts: int, judged: Sequence[Judged], drafted: int, differ: int) -> str:
    accepted = sum(each.accepted for each in judged)
    told = f"{kind:12}{texts:3} texts, {len(judged):5} draft tokens judged, {accepted / len(judged):.3f} accepted"
    return told + f"; of {drafted} drafted token by token, {differ} differ"


def _write(options: Any, profile: ProfileFile) -> None:
    folder = Path(agreement.__file__).with_name("profiles") if options.save else UNSAVED
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.name}.json"
    text = json.dumps(profile.model_dump(), indent=1)
    text = re.sub(r"\[[\d,\s]+\]", lambda numbers: " ".join(numbers[0].split()), text)  # a list takes a line
    path.write_text(text + "\n", encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
