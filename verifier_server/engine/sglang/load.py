"""Waits for a running SGLang, checks that it can judge drafts of its model, and makes the engine over it."""

import asyncio
import logging
import time
from collections.abc import Mapping
from math import inf, prod
from pathlib import Path
from typing import Any

from backends.hugging_face import model_name, read_vocabulary
from specpair.engines.backend import Progress
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import COMPILATION, LoadOptions
from specpair.engines.model_files import read_json
from specpair.engines.probe_texts import timing_ids
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.options.option import options_of
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.processors import Processors
from verifier_server.engine.external_cores.core import CoreUnreachable, LoopThread
from verifier_server.engine.external_cores.load import CoreProbe, loaded_engine, refuse_scheduling
from verifier_server.engine.interface import EngineInfo, LoadedEngine
from verifier_server.engine.sglang.api import PassPrompt, Refusal, SglangApi, Unreachable
from verifier_server.engine.sglang.core import SglangCore
from verifier_server.engine.sglang.replies import UnusableReply

_log = logging.getLogger("specpair.sglang")
VERSIONS = ("0.5.23",)  # whose source the requests and replies here were written from
_SAMPLE = "def mean(values):\n    return sum(values) / len(values)  # 12.5, [é]; Hello, world! <html>"
_TRIED = 12  # tokens of the text that is tried
WAIT, TOLD_EVERY = 0.5, 10.0  # seconds between looks at a server that is not ready, and between log lines about it
_SLOTS = 64  # texts at once, where SGLang does not tell how many it runs
_RAW = "the likeliest tokens that SGLang tells are those before such changes: leave it out"
_NO_ROWS = "SGLang returns no logits: leave it out"
LACKS = {
    "temperature": "SGLang tells the likeliest tokens only, and judges drafts by them at temperature 0: set it to 0",
    # `min_p` masks nothing that temperature 0 could choose.
    **{name: _RAW for name in options_of(Processors) if name != "min_p"},
    "explain": _NO_ROWS,
    "logprobs": _NO_ROWS,
}
STRATEGIES = (Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY)
_SERVERS_OWN = (  # options of engines that the server decides by itself
    *("deterministic", "mmap", "gpu_layers", "compile", *COMPILATION, "device", "threads", "dtype"),
    *("flash_attention", "batch_tokens", "kv_type", "tensor_parallel"),
)
_SIZES = ("tp_size", "pp_size", "dp_size")
_SAME = ("model_path", "tokenizer_path", "weight_version")  # of what SGLang tells of its model, as long as it is used


def load(options: LoadOptions, settings: Any, progress: Progress = lambda _share: None) -> LoadedEngine:
    """Make a running SGLang the verifier's engine. `settings`: those of the verifier. Raises ModelLoadError.

    `progress`: is called while SGLang is waited for; what it raises ends that.
    """
    options.refuse("sglang", *_SERVERS_OWN)
    refuse_scheduling(settings, "SGLang")
    if settings.hf is not None:
        raise ModelLoadError("hf: SGLang has the model; model names a folder with its tokenizer: leave hf out", "hf")
    key = None if settings.sglang_api_key is None else settings.sglang_api_key.get_secret_value()
    loop, api = LoopThread(), SglangApi(settings.sglang_url, key)
    try:
        return loop.result(_when_ready(loop, api, options, settings, progress))
    except BaseException as error:
        loop.stop()
        if isinstance(error, Refusal):
            raise ModelLoadError(str(error), error.setting) from error
        raise


async def _when_ready(
    loop: LoopThread, api: SglangApi, options: LoadOptions, settings: Any, progress: Progress
) -> LoadedEngine:
    """Wait until SGLang is ready, and make the engine. Raises ModelLoadError, Refusal, and the errors of `progress`."""
    told = -inf
    try:
        while True:
            try:
                if await api.healthy():
                    return await _checked(loop, api, options, settings)
                why = "it loads its model"
            except (Unreachable, CoreUnreachable) as error:
                why = str(error)
            progress(0.0)
            if time.monotonic() - told >= TOLD_EVERY:
                told = time.monotonic()
                _log.warning("waiting for SGLang at %s: %s", api.url, why)
            await asyncio.sleep(WAIT)
    except BaseException:
        await api.close()
        raise


async def _checked(loop: LoopThread, api: SglangApi, options: LoadOptions, settings: Any) -> LoadedEngine:
    model, server = await api.model(), await api.server()
    folder = _folder(settings.model, model)
    config = read_json(folder / "config.json")
    check_server(model, server, config)
    vocabulary = read_vocabulary(folder, _size(folder, config))
    info = _info(options, settings.max_drafts, model, server, vocabulary)
    api.vocabulary_size = vocabulary.size
    try:
        await check_vocabulary(api, vocabulary, info.context_length - 1)
        await check_drafts(api, vocabulary, info.max_drafts)
    except (UnusableReply, SpecPairError) as error:
        raise ModelLoadError(f"SGLang's replies cannot be used: {error}") from error
    _log.info("SGLang %s at %s serves %s, probed", server.get("version"), api.url, model.get("model_path"))
    core = SglangCore(api, {name: model.get(name) for name in _SAME})
    try:
        pass_times = await CoreProbe(core, info, "SGLang").pass_times()
        return loaded_engine(core, loop, info, pass_times, folder, settings)
    except BaseException:
        await core.stop()
        raise


def _folder(given: Path | None, model: Mapping[str, Any]) -> Path:
    """The folder with the vocabulary: `given`, or else SGLang's model folder if it is on this machine."""
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
    options: LoadOptions, max_drafts: int, model: Mapping[str, Any], server: Mapping[str, Any], vocabulary: Vocabulary
) -> EngineInfo:
    longest = server.get("max_req_input_len")  # of a request, so that a pass over all but a text's last token fits
    if not isinstance(longest, int):
        raise ModelLoadError("sglang_url: its /server_info has no max_req_input_len: is it SGLang?", "sglang_url")
    return EngineInfo(
        name="sglang",
        model_name=model_name(Path(str(model.get("served_model_name") or model.get("model_path")))),
        vocabulary=vocabulary,
        slots=options.slots or _running(server),
        context_length=min(longest, options.context_length or longest),
        max_drafts=max_drafts,
        kv_bytes=0,
        threads=0,
        chat_template=None,
        devices=prod(each for name in _SIZES if isinstance(each := server.get(name), int)),
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


def check_server(model: Mapping[str, Any], server: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raises ModelLoadError for a server that cannot be a verifier, or whose model is not that of `config`.

    `model`, `server`: what it tells of both.
    `config`: the config.json of the folder with the vocabulary.
    """
    if model.get("is_generation") is not True:
        raise _wrong(f"it serves {model.get('model_path')}, which generates no text")
    if model.get("disaggregation_mode") not in (None, "null"):
        raise _wrong("it serves only prefill or only decoding: give the address of a complete server")
    if model.get("preferred_sampling_params"):
        raise _wrong("it was started with --preferred-sampling-params, which would change texts: leave that out")
    kinds = [told.get("model_type") for told in (model, config)]
    if None not in kinds and kinds[0] != kinds[1]:
        raise ModelLoadError(
            f"model: its config.json is that of a {kinds[1]}, and SGLang serves a {kinds[0]}, "
            f"{model.get('model_path')}: give the folder of that model",
            "model",
        )
    version = server.get("version")
    if version not in VERSIONS:
        _log.warning(
            "SGLang is %s, and the engine was written for %s: checks at the start and of every reply report changes",
            version,
            ", ".join(VERSIONS),
        )
    if server.get("disable_radix_cache"):
        _log.warning("SGLang was started with --disable-radix-cache: each pass reads its text from the beginning")


async def check_vocabulary(api: SglangApi, vocabulary: Vocabulary, longest: int) -> None:
    """Raises ModelLoadError if SGLang writes other text for a token. `longest`: tokens of a prompt, at most."""
    ids = vocabulary.encode(_SAMPLE)[:longest]
    for token, told in zip(ids, await api.spelled(ids), strict=True):
        if told is None:
            _log.warning("SGLang has no tokenizer: its vocabulary cannot be compared to the folder's")
            return
        ours = _text(vocabulary, token)
        # Tokenizers leave out the space before a token that is decoded alone.
        if ours is not None and ours.strip() != told.strip():
            raise ModelLoadError(
                f"model: its token {token} is {ours!r}, and SGLang's is {told!r}: give the folder of the model that "
                "SGLang serves",
                "model",
            )


async def check_drafts(api: SglangApi, vocabulary: Vocabulary, most: int) -> None:
    """Decode a text, judge it as a draft, and judge a wrong draft. Raises ModelLoadError if SGLang's choices differ
    from the text in more than a few near-ties, which two kernels may order differently.

    `most`: draft tokens in one pass.
    """
    prompt, salt = [vocabulary.begin or 0, *timing_ids(vocabulary.size, 3)], "probe"
    pieces = api.decode(PassPrompt.of(prompt, salt), _TRIED, [])
    text = [token async for piece in pieces for token in piece.tokens]
    if len(text) != _TRIED:
        raise ModelLoadError(f"SGLang decodes {len(text)} tokens where {_TRIED} were asked for")
    width = min(most, len(text) - 1)
    wrong = [(token + 1) % vocabulary.size for token in text[:width]]
    right = (await api.judge(PassPrompt.of([*prompt, *text[:width]], salt), len(prompt))).choices
    first = (await api.judge(PassPrompt.of([*prompt, *wrong], salt), len(prompt))).choices[0]
    others = sum(told != token for told, token in zip(right, text, strict=False))
    if others > width // 3 or first not in (text[0], right[0]):
        raise ModelLoadError(
            f"SGLang decodes {text}, and chooses {right} when it is given that as a draft, {first} at the "
            "beginning of a wrong one: it must not be served"
        )
    if others:
        _log.warning("SGLang decodes %s and chooses %s when it judges that: a near-tie", text, right)


def _text(vocabulary: Vocabulary, token: int) -> str | None:
    """The text of a token; None: it is part of a character, or a control token."""
    if vocabulary.kinds[token] != Kind.ORDINARY:
        return None
    try:
        return vocabulary.pieces[token].decode()
    except UnicodeDecodeError:
        return None


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"sglang_url: {reason}", "sglang_url")
