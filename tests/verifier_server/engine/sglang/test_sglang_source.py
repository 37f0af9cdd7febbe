"""SGLang's own source: it takes our requests, and makes the log probabilities that the recorded reply has.

SGLANG_SRC names the folder of an unpacked wheel. Nothing of it is installed: single classes are cut out and run.
"""

import ast
import asyncio
import copy
import importlib.util
import json
import os
import typing
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from tests.stand_ins.sglang import RECORDED, SglangStandIn
from verifier_server.engine.sglang.api import PassPrompt, SglangApi
from verifier_server.engine.sglang.load import VERSIONS

pytestmark = pytest.mark.engine("sglang")

JUDGED = RECORDED["judged"]


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((Path(os.environ["SGLANG_SRC"]) / "sglang" / path).read_text(encoding="utf-8"))


def found(path: str, name: str) -> ast.ClassDef:
    return next(each for each in tree(path).body if isinstance(each, ast.ClassDef) and each.name == name)


def fields(path: str, name: str) -> set[str]:
    """The annotated fields of a class."""
    nodes = (each.target for each in found(path, name).body if isinstance(each, ast.AnnAssign))
    return {each.id for each in nodes if isinstance(each, ast.Name)}


def cut(path: str, name: str, methods: Collection[str] = ()) -> CodeType:
    """The code of a class. `methods`: those that it keeps, without its bases; empty: all."""
    node = copy.deepcopy(found(path, name))
    if methods:
        node.bases, node.decorator_list = [], []
        node.body = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name in methods]
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    return compile(ast.fix_missing_locations(ast.Module([future, node], [])), path, "exec")


@pytest.fixture(scope="module")
def asked() -> Iterator[list[Mapping[str, Any]]]:
    """The requests that we send."""
    server = SglangStandIn(ScriptedBackend(Script(seed=2)))

    async def ask() -> None:
        api = SglangApi(server.url, None)
        api.vocabulary_size = 258
        await api.judge(PassPrompt.of([256, 1, 2, 3], "salt"), 2)
        await api.spelled([256, 1, 2])
        for ends in ([END], []):
            [_ async for _ in api.decode(PassPrompt.of([256, 1], "salt"), 3, ends)]
        await api.close()

    asyncio.run(ask())
    yield [json.loads(json.dumps(body)) for body in server.asked]
    server.kill()


def test_source_is_of_a_known_version() -> None:
    [told] = [
        each.value.value
        for each in ast.walk(tree("_version.py"))
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
    ]
    assert told in VERSIONS


def test_requests_are_what_the_server_takes(asked: list[Mapping[str, Any]]) -> None:
    place = Path(os.environ["SGLANG_SRC"]) / "sglang" / "api" / "v1" / "api_types.py"
    spec = importlib.util.spec_from_file_location("sglang_api_types", place)
    assert spec is not None and spec.loader is not None
    types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(types)
    assert len(asked) == 4
    for body in asked:
        types.GenerateRequest.from_json_value(body)
        assert {*body} <= fields("srt/managers/io_struct.py", "GenerateReqInput")
        assert {*body["sampling_params"]} <= fields("srt/sampling/sampling_params.py", "SamplingParams")


def test_reasons_of_ends_are_the_recorded_ones() -> None:
    made: dict[str, Any] = {**vars(typing), "BaseFinishReason": type("Base", (), {"__init__": lambda _: None})}
    for name in ("FINISH_MATCHED_TOKEN", "FINISH_MATCHED_STR", "FINISH_LENGTH", "FINISH_ABORT"):
        exec(cut("srt/managers/schedule_batch.py", name), made)
    last = json.loads(RECORDED["stream"]["lines"][4].removeprefix("data: "))["meta_info"]["finish_reason"]
    assert made["FINISH_MATCHED_TOKEN"](matched=151645).to_json() == last
    assert made["FINISH_MATCHED_STR"](matched="NaN happened").to_json() == RECORDED["not_numbers"]
    assert made["FINISH_LENGTH"](length=1).to_json() == JUDGED["reply"]["meta_info"]["finish_reason"]
    assert made["FINISH_ABORT"]().to_json() == RECORDED["aborted"]
