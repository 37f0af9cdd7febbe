"""Waits for a running SGLang, checks it, and makes the engine over it."""

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import hugging_face
from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import COMPILATION, LoadOptions
from specpair.engines.model_files import read_json
from specpair.engines.vocabulary import Vocabulary
from specpair.extras import installing
from specpair.options.option import options_of
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.processors import MinP, Processors
from verifier_server.engine.cores.core import CoreAway, LoopThread
from verifier_server.engine.cores.load import CoreProbe, loaded_engine, refuse_scheduling
from verifier_server.engine.port import EngineInfo, LoadedEngine

if TYPE_CHECKING:
    from verifier_server.engine.sglang.api import SglangApi

_log = logging.getLogger("specpair.sglang")
WAIT, TOLD_EVERY = 0.5, 10.0  # seconds between looks at a server that is not ready, and between log lines about it
_SLOTS = 64  # texts at once, where SGLang does not tell how many it runs
_GREEDY = "SGLang tells the likeliest tokens only, and judges drafts by them at temperature 0: set it to 0"
_RAW = "the likeliest tokens that SGLang tells are those before such changes: leave it out"
_NO_ROWS = "SGLang tells no rows of logits: leave it out"
LACKS = {
    "temperature": _GREEDY,
    # `min_p` masks nothing that temperature 0 could choose.
    **{name: _RAW for name in options_of(Processors) if name not in options_of(MinP)},
    "explain": _NO_ROWS,
    "logprobs": _NO_ROWS,
}
STRATEGIES = (Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY)
_SERVERS_OWN = (  # options of engines that the server decides by itself
    *("deterministic", "mmap", "gpu_layers", "compile", *COMPILATION, "device", "threads", "dtype"),
    *("flash_attention", "batch_tokens", "kv_type", "tensor_parallel"),
)
_SAME = ("model_path", "tokenizer_path", "weight_version")  # of what SGLang tells of its model, as long as it is used


def load(options: LoadOptions, settings: Any, progress: Progress = lambda _share: None) -> LoadedEngine:
    """Make a running SGLang the verifier's engine. `settings`: those of the verifier. Raises ModelLoadError.

    `progress`: is called while SGLang is waited for; what it raises ends that.
    """
    options.refuse("sglang", *_SERVERS_OWN)
    refuse_scheduling(settings, "SGLang")
    if settings.hf is not None:
        raise ModelLoadError("hf: SGLang has the model; model names a folder with its tokenizer: leave hf out", "hf")
    try:
        from verifier_server.engine.sglang.api import SglangApi
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    loop = LoopThread()
    try:
        key = None if settings.sglang_api_key is None else settings.sglang_api_key.get_secret_value()
        return _loaded(loop, SglangApi(settings.sglang_url, key), options, settings, progress)
    except BaseException:
        loop.stop()
        raise


def _loaded(
    loop: LoopThread, api: "SglangApi", options: LoadOptions, settings: Any, progress: Progress
) -> LoadedEngine:
    from verifier_server.engine.sglang.api import Refusal
    from verifier_server.engine.sglang.connections import Unreachable
    from verifier_server.engine.sglang.core import SglangCore
    from verifier_server.engine.sglang.probe import check_drafts, check_server, check_vocabulary

    async def checked() -> LoadedEngine:
        model, server = await api.model(), await api.server()
        folder = _folder(settings.model, model)
        config = read_json(folder / "config.json")
        check_server(model, server, config)
        vocabulary = read_vocabulary(folder, _size(folder, config))
        info = _info(options, settings.max_drafts, model, server, vocabulary)
        api.vocabulary_size = vocabulary.size
        await check_vocabulary(api, vocabulary, info.context_length - 1)
        await check_drafts(api, vocabulary, info.max_drafts)
        _log.info("SGLang %s at %s serves %s, probed", server.get("version"), api.url, model.get("model_path"))
        core = SglangCore(api, {name: model.get(name) for name in _SAME})
        try:
            pass_times = await CoreProbe(core, info, "SGLang").pass_times()
            return loaded_engine(core, loop, info, pass_times, folder, settings)
        except BaseException:
            await core.stop()
            raise

    async def ready() -> LoadedEngine:
        told, began = -TOLD_EVERY, time.monotonic()
        while True:
            try:
                if await api.healthy():
                    return await checked()
                why = "it loads its model"
            except (Unreachable, CoreAway) as error:
                why = str(error)
            progress(0.0)
            if time.monotonic() - began - told >= TOLD_EVERY:
                told = time.monotonic() - began
                _log.warning("waiting for SGLang at %s: %s", api.url, why)
            await asyncio.sleep(WAIT)

    async def closing() -> LoadedEngine:
        try:
            return await ready()
        except BaseException:
            await api.close()
            raise

    try:
        return loop.result(closing())
    except Refusal as error:
        raise ModelLoadError(str(error), error.setting) from error


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """The vocabulary of a folder in Hugging Face layout. Raises ModelLoadError."""
    try:
        return hugging_face.read_vocabulary(folder, size)
    except ModuleNotFoundError as error:
        raise _missing(error) from error


def _missing(error: ModuleNotFoundError) -> ModelLoadError:
    return ModelLoadError(f"the sglang engine needs {error.name}, which is not installed: {installing('sglang')}")


def _folder(given: Path | None, model: Mapping[str, Any]) -> Path:
    """The folder with the vocabulary: the one that was given, or that of SGLang where it is on this machine, too."""
    told = str(model.get("tokenizer_path") or model.get("model_path"))
    folder = Path(told) if given is None else given
    if folder.is_dir() and (folder / "config.json").is_file():
        return folder
    if given is not None:
        raise ModelLoadError(f"model: {given} is no model folder: it has no config.json", "model")
    raise ModelLoadError(
        f"model: SGLang's {told} is no folder on this machine: give a folder that has config.json, tokenizer.json, "
        "tokenizer_config.json and generation_config.json of this model; the weights are not needed",
        "model",
    )


def _size(folder: Path, config: Mapping[str, Any]) -> int:
    """How many ids the model has."""
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    if not isinstance(size, int):
        raise ModelLoadError(f"model: {folder / 'config.json'} has no vocab_size", "model")
    return size


def _info(
    options: LoadOptions,
    max_drafts: int,
    model: Mapping[str, Any],
    server: Mapping[str, Any],
    vocabulary: Vocabulary,
) -> EngineInfo:
    longest = server.get("max_req_input_len")  # of a request, so that a pass over all but a text's last token fits
    if not isinstance(longest, int):
        raise ModelLoadError("sglang_url: its /server_info has no max_req_input_len: is it SGLang?", "sglang_url")
    sizes = [each for name in ("tp_size", "pp_size", "dp_size") if isinstance(each := server.get(name), int)]
    devices = 1
    for each in sizes:
        devices *= each
    return EngineInfo(
        name="sglang",
        model_name=hugging_face.model_name(Path(str(model.get("served_model_name") or model.get("model_path")))),
        vocabulary=vocabulary,
        slots=options.slots or _running(server),
        context_length=min(longest, options.context_length or longest),
        max_drafts=max_drafts,
        kv_bytes=0,
        threads=0,
        chat_template=None,
        devices=devices,
        strategies=STRATEGIES,
        lacks=LACKS,
    )


def _running(server: Mapping[str, Any]) -> int:
    """How many texts SGLang runs at once."""
    states = server.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    for told in (server.get("max_running_requests"), state.get("effective_max_running_requests_per_dp")):
        if isinstance(told, int) and told > 0:
            return told
    return _SLOTS
