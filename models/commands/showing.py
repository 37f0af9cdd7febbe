"""The output of the commands, for people, at the terminal's width, and for programs; and the progress of a pull."""

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from models.commands.description import Layers, ListedTokens, ModelDescription, PairVerdict
from models.hub.gguf_layers import DraftHead
from models.hub.names import head_kind
from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.numbers import sized
from specpair.protocol.terminal_text import one_line

_log = logging.getLogger("models.hub")
_OFTEN, _SELDOM = 0.2, 10.0  # seconds between two lines on a terminal, and elsewhere
_SPEED_OVER = 1.0  # seconds, at least, over which the speed is told
_GAP, _INDENT = "  ", "    "
_NARROWEST = 20  # letters in a line, at least
TEXT = 4096  # tokens of context that the memory of a text is told for
CHEAP = 0.25  # at most so large a share of a step of the target pays on one machine
F16 = 2  # bytes of a number in a KV cache of the usual type


class Bar(logging.Handler):
    """The progress of a pull: a context in which it is called with the fetched and the total bytes.

    A terminal has one line, which is written again and again; elsewhere a line is added now and then. What is logged of
    the hub gets lines of its own.
    """

    def __init__(self, name: str, program: str) -> None:
        super().__init__()
        self._model, self._program = name, program
        self._rewrites = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._first: tuple[float, int] | None = None  # when the first bytes came, and how many were here then
        self._told = time.monotonic() if not self._rewrites else 0.0
        self._open = False  # whether the last line has no end yet

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        if now - self._told < (_OFTEN if self._rewrites else _SELDOM) and (done < total or not self._open):
            return
        self._told, seconds, came = now, now - began, done - before
        line = f"{self._model}: {sized(done)} of {sized(total)} ({done / total if total else 1.0:.0%})"
        if seconds >= _SPEED_OVER and came > 0 and done < total:
            left = int((total - done) * seconds / came)
            line += f", {sized(came / seconds)}/s, {left // 60}:{left % 60:02} left"
        if not self._rewrites:
            print(line, file=sys.stderr, flush=True)
            return
        width = max(shutil.get_terminal_size().columns - 1, 20)
        if len(line) > width:
            line = "…" + line[1 - width :]
        print(f"\r{line.ljust(width)}", end="", file=sys.stderr, flush=True)
        self._open = True

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())

    def interrupted(self) -> None:
        """Say that the pull was interrupted."""
        self._say("interrupted; fetched bytes are kept: run the same command to continue")

    def _say(self, text: str) -> None:
        self._end_line()
        print(f"{self._program}: {one_line(text)}", file=sys.stderr)

    def _end_line(self) -> None:
        if self._open:
            self._open = False
            print(file=sys.stderr)

    def __enter__(self) -> Self:
        _log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        _log.removeHandler(self)
        self._end_line()


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells. Where they are wider than the terminal, the first cell of each has a line of its own.

    Nothing in the cells can move the cursor.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    most = _columns()
    if most is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= most:
        for line in lines:
            print(_GAP.join(line).rstrip())
        return
    for first, *others in lines:
        print(first.rstrip())
        print(textwrap.fill(_GAP.join(others).rstrip(), most, initial_indent=_INDENT, subsequent_indent=_INDENT))


def _columns() -> int | None:
    """The columns that a line may take; None: as many as it needs."""
    return max(shutil.get_terminal_size().columns - 1, _NARROWEST) if sys.stdout.isatty() else None


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels with their texts, without control characters."""
    label_width = max(len(label) for label, _ in rows)
    indent = " " * (label_width + len(_GAP))
    columns = _columns()
    for label, text in rows:
        line = f"{label.ljust(label_width)}{_GAP}{one_line(text)}"
        if columns is None:
            print(line)
            continue
        most = max(columns, len(indent) + _NARROWEST)
        print(textwrap.fill(line, most, subsequent_indent=indent, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """Print one object or array in a line."""
    print(json.dumps(value))


class ReplyStyle(NamedTuple):
    """How a model's chat template writes tool calls and thoughts.

    `calls`: the name of the style of calls.
    `shown`: the template shows that style; else it is the default.
    `thoughts`: what stands before and after them; None: the template has no markers.
    """

    calls: str
    shown: bool
    thoughts: tuple[str, str] | None


Styles = Callable[[str], ReplyStyle]  # of the text of a chat template


def facts(model: ModelDescription, styles: Styles) -> dict[str, Any]:
    """The facts of a model, for programs. Sizes are bytes, ids are tokens."""
    template, vocabulary = model.chat_templates.get(DEFAULT_TEMPLATE), model.vocabulary
    style, layers = None if template is None else styles(template), model.layers
    return {
        "model": model.name,
        "architecture": model.architecture,
        "layers": layers.words,
        "recurrent": layers.recurrent,
        "experts": None if layers.experts is None else dict(zip(("used", "count"), layers.experts, strict=True)),
        "sliding_window": layers.window,
        "parameters": model.parameters,
        "quantization": model.quantization,
        "weight_bytes": model.weight_bytes,
        "context": model.context or None,
        "kv_bytes_per_token": model.kv_numbers * F16,
        "head": _of_head(model.head, model.head_file),
        "vocabulary": None if vocabulary is None else _of_tokens(vocabulary),
        "chat_templates": list(model.chat_templates),
        "chat_template": None if template is None else DEFAULT_TEMPLATE,
        "tool_calls": style and style.calls,
        "thoughts": style and style.thoughts and dict(zip(("begin", "end"), style.thoughts, strict=True)),
    }


def rows(model: ModelDescription, styles: Styles) -> list[tuple[str, str]]:
    """The same for people."""
    known = f"{model.context:,} tokens, as trained" if model.context else "not stated"
    text = min(model.context or TEXT, TEXT)
    return [
        ("model", model.name),
        ("architecture", f"{model.architecture}: {model.layers.words}"),
        ("speculation", speculation(model.layers)),
        ("head", head_words(model, text)),
        ("weights", weights(model)),
        ("context", f"{known}; a text of {text:,} takes {sized(text * model.kv_numbers * F16)} of KV cache in f16"),
        *_vocabulary_rows(model.vocabulary),
        *_template_rows(model, styles),
    ]


def head_words(model: ModelDescription, text: int) -> str:
    """The head that drafts for a model: kind, layers, size, place, and memory for a text of `text` tokens."""
    head = model.head
    if head is None:
        return f"{model.head_file}, which is not in the cache: pull --head fetches it" if model.head_file else "none"
    layers = f"{head.layers} layer{'' if head.layers == 1 else 's'}"
    place = model.head_file or ("a file without its target" if head.alone else "the model's file")
    cached = sized(text * head.kv_numbers * F16)
    return f"{head.kind}, {layers}, {sized(head.size)} in {place}; a text of {text:,} takes {cached} of KV cache in f16"


def weights(model: ModelDescription) -> str:
    """Parameters, type and size of the weights."""
    count = model.parameters
    told = f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.{0 if count >= 1e7 else 1}f}M"
    return f"{told} parameters in {model.quantization}, {sized(model.weight_bytes)}"


def of_pair(draft: ModelDescription, target: ModelDescription, verdict: PairVerdict) -> list[tuple[str, str]]:
    """The facts of a draft model for a target."""
    drafts, verifies = (sized(each.weight_bytes + TEXT * each.kv_numbers * F16) for each in (draft, target))
    if not verdict.pairs:
        words = "no pair by themselves: with --translate, the one drafts for the other through text"
    elif verdict.share <= CHEAP:
        words = "a pair"
    elif verdict.share < 1:
        words = "a pair, but a draft token takes over a quarter of a target token's time: on one machine it may not pay"
    else:
        words = "a pair, but the draft model is no smaller than the target: it saves nothing"
    cost = f"a draft step reads {verdict.share:.2f} of the bytes of a step of the target: its time, on like memory"
    return [
        ("draft model", f"{draft.name}: {weights(draft)}"),
        ("target", f"{target.name}: {weights(target)}"),
        ("memory", f"{drafts} where it drafts, {verifies} where it verifies, for a text of {TEXT:,} tokens"),
        ("cost", cost),
        ("vocabulary", "the same" if verdict.difference is None else f"not the same: {verdict.difference}"),
        ("verdict", words),
    ]


def speculation(layers: Layers) -> str:
    """The layers' effects on speculative decoding."""
    told = ["rejected draft tokens are taken back at no cost"]
    if layers.recurrent:
        put_back = "after a rejection a copy of the state is put back, and what was accepted is read again"
        told = [f"on llama_cpp and torch; {put_back}: both ends draft less where that does not pay"]
    if layers.experts:
        told.append(
            "a pass over several tokens reads more experts than one over a token, so that long drafts gain less"
        )
    if layers.window:
        told.append("the KV cache keeps tokens beyond the window, so that rejected drafts can be rolled back")
    return "; ".join(told)


def _of_head(head: DraftHead | None, file: str | None) -> dict[str, Any] | None:
    """The facts of a head; of one that was not fetched, its file and kind alone. None: there is no head."""
    if head is None:
        unknown = dict.fromkeys(("layers", "bytes", "kv_bytes_per_token"))
        return None if file is None else {"kind": head_kind(file), "file": file, **unknown}
    told = {"kind": head.kind, "file": file, "layers": head.layers, "bytes": head.size}
    return told | {"kv_bytes_per_token": head.kv_numbers * F16}


def _of_tokens(tokens: ListedTokens) -> dict[str, Any]:
    return {
        "ids": len(tokens.pieces),
        "scheme": tokens.scheme,
        "ordinary": tokens.ordinary,
        "begin": tokens.begin,
        "adds_begin": tokens.adds_begin,
        "end": tokens.end,
        "ends": sorted(tokens.ends),
    }


def _vocabulary_rows(tokens: ListedTokens | None) -> list[tuple[str, str]]:
    if tokens is None:
        return [("vocabulary", "none in the files")]
    before = "before prompts as the tokenizer has it"
    if tokens.adds_begin is not None:
        before = "put before each prompt" if tokens.adds_begin else "not put before prompts"
    begin = "none" if tokens.begin is None else f"{tokens.spelled([tokens.begin])}, {before}"
    written = "" if tokens.end is None or len(tokens.ends) == 1 else f"; templates write {tokens.end}"
    return [
        ("vocabulary", f"{len(tokens.pieces):,} ids ({tokens.scheme}), hash of the text tokens {tokens.ordinary}"),
        ("begin token", begin),
        ("end tokens", (tokens.spelled(tokens.ends) or "none is known") + written),
    ]


def _template_rows(model: ModelDescription, styles: Styles) -> list[tuple[str, str]]:
    template = model.chat_templates.get(DEFAULT_TEMPLATE)
    others = [name for name in model.chat_templates if name != DEFAULT_TEMPLATE]
    used = "none: give one with --chat-template FILE" if template is None else f"{DEFAULT_TEMPLATE}, which is used"
    further = f"; with --chat-template NAME also {', '.join(others)}" if others else ""
    told = [("chat template", used + further)]
    if template is not None:
        style = styles(template)
        shown = "as the template shows" if style.shown else "the template shows no style of a family"
        told.append(("tool calls", f"{style.calls}: {shown}"))
        told.append(("thoughts", "between {} and {}".format(*style.thoughts) if style.thoughts else "no markers"))
    return told
