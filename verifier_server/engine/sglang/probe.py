"""Checks at the start: the server is an SGLang, its model is the one of the vocabulary, and it judges drafts."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from specpair.engines.backend import timing_ids
from specpair.engines.errors import ModelLoadError
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.protocol.errors import SpecPairError
from verifier_server.engine.sglang.api import PassPrompt, SglangApi
from verifier_server.engine.sglang.replies import UnusableReply

_log = logging.getLogger("specpair.sglang")
VERSIONS = ("0.5.23",)  # whose source the requests and replies here were written from
_SAMPLE = "def mean(values):\n    return sum(values) / len(values)  # 12.5, [é]; Hello, world! <html>"
_TEXT = 12  # tokens of the text that is tried


def check_server(model: Mapping[str, Any], server: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raises ModelLoadError for a server that cannot be a verifier, or whose model is not that of `config`.

    `model`, `server`: what it tells of both.
    `config`: the config.json of the folder with the vocabulary.
    """
    if model.get("is_generation") is not True:
        raise _wrong(f"it serves {model.get('model_path')}, which generates no text")
    if model.get("disaggregation_mode") not in (None, "null"):
        raise _wrong("it is one half of a pair that divides prefill and decoding: give the address of a whole server")
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
            "this is SGLang %s; the engine was written from the source of %s: the checks at the start, and those of "
            "every reply, say what has changed",
            version,
            ", ".join(VERSIONS),
        )
    if server.get("disable_radix_cache"):
        _log.warning("SGLang was started with --disable-radix-cache: each pass reads its text from the beginning")


async def check_vocabulary(api: SglangApi, vocabulary: Vocabulary, longest: int) -> None:
    """Raises ModelLoadError if SGLang writes other text for a token. `longest`: tokens of a prompt, at most."""
    ids = vocabulary.encode(_SAMPLE)[:longest]
    for token, told in zip(ids, await _asked(api.spelled(ids)), strict=True):
        if told is None:
            _log.warning("SGLang has no tokenizer: whether its vocabulary is that of the folder cannot be compared")
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
    """Decode a text, have it judged as a draft, and have a wrong draft judged. Raises ModelLoadError if SGLang does not
    choose the tokens of the text again, but for some, since kernels of two kinds may order a near-tie in both ways.

    `most`: draft tokens in one pass.
    """
    prompt, salt = [vocabulary.begin or 0, *timing_ids(vocabulary.size, 3)], "probe"
    text = await _decoded(api, prompt, salt)
    width = min(most, len(text) - 1)
    right = await _asked(api.judge(PassPrompt.of([*prompt, *text[:width]], salt), len(prompt)))
    others = [at for at, (told, token) in enumerate(zip(right.choices, text, strict=False)) if told != token]
    wrong = [(token + 1) % vocabulary.size for token in text[:width]]
    first = (await _asked(api.judge(PassPrompt.of([*prompt, *wrong], salt), len(prompt)))).choices[0]
    if len(others) > width // 3 or first not in (text[0], right.choices[0]):
        raise ModelLoadError(
            f"SGLang decodes {text}, and chooses {right.choices} when it is given that as a draft, {first} at the "
            "beginning of a wrong one: it must not be served"
        )
    if others:
        _log.warning("SGLang decodes %s and chooses %s when it judges that: a near-tie", text, right.choices)


async def _decoded(api: SglangApi, prompt: Sequence[int], salt: str) -> list[int]:
    async def all_of_it() -> list[int]:
        pieces = api.decode(PassPrompt.of(prompt, salt), _TEXT, [])
        return [token async for piece in pieces for token in piece.tokens]

    text: list[int] = await _asked(all_of_it())
    if len(text) != _TEXT:
        raise ModelLoadError(f"SGLang decodes {len(text)} tokens where {_TEXT} were asked for")
    return text


async def _asked(work: Any) -> Any:
    try:
        return await work
    except (UnusableReply, SpecPairError) as error:
        raise ModelLoadError(f"SGLang's replies cannot be used: {error}") from error


def _text(vocabulary: Vocabulary, token: int) -> str | None:
    """What a token is as text; None: a part of a character, or none that is written."""
    if vocabulary.kinds[token] != Kind.ORDINARY:
        return None
    try:
        return vocabulary.pieces[token].decode()
    except UnicodeDecodeError:
        return None


def _wrong(reason: str) -> ModelLoadError:
    return ModelLoadError(f"sglang_url: {reason}", "sglang_url")
