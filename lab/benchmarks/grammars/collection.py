"""How many schemas of a collection compile, which do not and why, and what the masks of those that do take.

Method. `--schemas` files of the folder, evenly spaced in the order of their names (folders of the collection by turns),
are compiled for the vocabulary of a model, as a verifier does. Of those that compile, one text each is drawn from the
masks alone (logits are noise), up to `--tokens` tokens. Times are of one thread, a mask's with its writing onto the
row. The folder is a checkout of a collection such as JSONSchemaBench (github.com/guidance-ai/jsonschemabench,
arXiv 2501.10868), whose `data` has a folder for each source.

    python -m lab.benchmarks.grammars.collection FOLDER [--model QWEN.gguf] [--schemas 300]
"""

import argparse
import json
import re
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np

from backends.registry import load
from lab.benchmarks.harness.report import Report, parser_of
from models import DEFAULT_TARGET
from specpair.engines.load_options import LoadOptions
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.compiling import Grammars
from specpair.protocol.errors import InvalidRequest
from specpair.quantile import quantile
from specpair.speculation.sampling.grammar import LONGEST_SCHEMA, GrammarText

FLAGS = {"model": str(DEFAULT_TARGET), "schemas": 300, "tokens": 200}


def main() -> None:
    parser = parser_of(__doc__, FLAGS)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of schemas, *.json, in folders or not")
    options = parser.parse_args()
    report = Report(
        "grammars.collection",
        argparse.Namespace(**{**vars(options), "folder": options.folder.name}),
        "grammars_collection",
    )
    with closing(load("llama_cpp", LoadOptions(model=Path(options.model), context_length=256), None)) as backend:
        _measure(backend.vocabulary, _chosen(options.folder, options.schemas), options.tokens, report)
    report.save()


def _chosen(folder: Path, count: int) -> list[Path]:
    """`count` files, as many of each folder as it has, evenly spaced."""
    groups = {each: sorted(each.glob("*.json")) for each in sorted({path.parent for path in folder.rglob("*.json")})}
    share = count / len(groups)
    return [
        paths[int(at * len(paths) / share)] for paths in groups.values() for at in range(min(int(share), len(paths)))
    ]


def _measure(vocabulary: Vocabulary, paths: list[Path], tokens: int, report: Report) -> None:
    grammars, random = Grammars(vocabulary), np.random.default_rng(1)
    began = time.perf_counter()
    grammars(GrammarText("regex", "a"))
    report.line(f"vocabulary of {vocabulary.size} ids read in {time.perf_counter() - began:.2f} s")
    compiled, masks, ended = list[float](), list[float](), Counter[str]()
    refused, by_folder = Counter[str](), Counter[tuple[str, bool]]()
    for path in paths:
        text = json.dumps(json.loads(path.read_text(encoding="utf-8")))
        began = time.perf_counter()
        try:
            if len(text) > LONGEST_SCHEMA:
                raise InvalidRequest(f"json_schema: {len(text)} characters")
            state = grammars(GrammarText("json_schema", text))
        except InvalidRequest as error:
            refused[_reason(error.message)] += 1
            by_folder[path.parent.name, False] += 1
            continue
        compiled.append(time.perf_counter() - began)
        by_folder[path.parent.name, True] += 1
        for _ in range(tokens):
            row = random.standard_normal(vocabulary.size).astype(np.float32)
            began = time.perf_counter()
            try:
                state.process(row)
            except ValueError:
                ended["too complex"] += 1
                break
            masks.append(time.perf_counter() - began)
            token = int(row.argmax())
            if token in vocabulary.ends:
                ended["ended"] += 1
                break
            state.push(token)
        else:
            ended["cut"] += 1
    report.line(f"{len(compiled)} of {len(paths)} schemas compile:")
    for name in dict.fromkeys(name for name, _ in by_folder):
        good, bad = by_folder[name, True], by_folder[name, False]
        report.line(f"  {name:16} {good} of {good + bad}")
    report.line("the others:", *(f"  {count:3} {reason}" for reason, count in refused.most_common()))
    report.line(_times("to compile", compiled), _times("a mask", masks), f"texts: {dict(ended)}")


def _reason(message: str) -> str:
    """The reason without what differs from schema to schema."""
    reason = message.partition(": ")[2]
    return re.sub(r"https?://\S+|'[^']*'|\d+", "…", reason)[:90]


def _times(what: str, seconds: list[float]) -> str:
    each = [1e3 * value for value in seconds]
    return f"{what}: p50 {quantile(each, 0.5):.3f} ms, p99 {quantile(each, 0.99):.3f} ms, at most {max(each):.1f} ms"


if __name__ == "__main__":
    main()
