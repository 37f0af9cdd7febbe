"""Reads a verifier's settings from flags, variables and `specpair.toml`, and derives the engines' options."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from backends.machine import cores
from backends.registry import COMPILING, WITH_HEADS, devices_of_draft
from models import DEFAULT_TARGET
from models.hub.names import HEADS
from specpair.command_line.layers import (
    Layer,
    LayeredSettings,
    Names,
    first_path,
    lasting_layers,
    settings_model,
    settings_table,
)
from specpair.command_line.options import option_values
from specpair.command_line.parser import Parser, flag
from specpair.command_line.setting_values import SettingsError as SettingsError
from specpair.corpus.draft_corpus import BadCorpus, checked
from specpair.drafters.composed_drafter import SPARE_CELLS
from specpair.engines.backend import Backend
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.engines.load_options import COARSE_KV, DRAFT_KV, HEAD, HEAD_IF_ANY, NO_HEAD, LoadOptions
from specpair.fairness import share_of_one_client
from specpair.http_service.options import check_keys
from specpair.options.option import AUTO
from specpair.speculation.drafting.composed_context import SIZES
from verifier_server.engine.choice import NGRAM, TOKEN_ENGINES, check_draft, check_target
from verifier_server.engine.interface import EngineInfo
from verifier_server.flags import flags_parser
from verifier_server.options import (
    ADDRESS,
    BY_HEAD,
    BY_MODEL,
    CORES_OF_WORKER,
    MOST_DRAFT_SLOTS,
    MOST_WORKERS,
    OFF,
    OPTIONS,
    Auto,
    VerifierOptions,
)

_log = logging.getLogger("specpair.verifier")
PREFIX = "VERIFIER_"
_USUAL_CONTEXT = 4096  # tokens; by default, engines take a model's trained context length up to this one

if TYPE_CHECKING:

    class _Options(VerifierOptions, LayeredSettings): ...

else:
    _Options = settings_model(LayeredSettings, OPTIONS)


class Settings(_Options):
    """The settings of a verifier: `OPTIONS`."""

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...  # the settings of the engine

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        check_target(self.backend)
        for name, engine in (("vllm_args", "vllm"), ("sglang_url", "sglang"), ("sglang_api_key", "sglang")):
            if getattr(self, name) and self.backend != engine:
                raise ValueError(f"{name}: the engine is {self.backend}: leave it out, or set backend to {engine}")
        if self.backend == "sglang" and self.sglang_url is None:
            raise ValueError("sglang_url: the sglang engine needs the address of a running server")
        if self.compile_store is not None and not {self.backend, self.draft_engine} & {*COMPILING}:
            raise ValueError(f"compile_store: the engine is {self.backend}, which compiles nothing: leave it out")
        if self.max_drafts >= self.batch_tokens:
            raise ValueError(f"max_drafts: {self.max_drafts} must be below batch_tokens ({self.batch_tokens})")
        for path, name in (("model", "hf"), ("draft_model", "draft_hf")):
            if getattr(self, path) is not None and getattr(self, name) is not None:
                raise ValueError(f"{name}: {path} names a model, too: leave one of the two out")
        if self.backend == "llama_cpp" and self.hf is None and not os.path.isfile(self.model_path):
            raise ValueError(f"model: {_no_file(self.model_path)}")
        self._check_draft()
        check_keys(self, "api_key")
        return self

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The variable of a setting that no layer sets."""
        return PREFIX + name.upper()

    def explained(self, error: BackendError, *, of_draft: bool = False) -> str:
        """An engine's message, with the user's name of the setting at fault.

        `of_draft`: whether the engine runs the draft model, which has the target's setting unless it has its own.
        """
        if not isinstance(error, ModelLoadError) or error.setting not in type(self).model_fields:
            return str(error)
        own = of_draft and getattr(self, f"draft_{error.setting}", None) not in (None, "auto")
        return error.called(self.key(f"draft_{error.setting}" if own else error.setting))

    @property
    def model_path(self) -> Path:
        """The target model's file or folder."""
        return self.model or DEFAULT_TARGET

    def most_kept(self, backend: Backend | EngineInfo) -> int | None:
        """Tokens of ended texts to keep; None: as many as the engine's slots hold.

        On a CPU, passes take longer the more tokens llama.cpp's cache holds, whoever they belong to.
        """
        if self.keep_tokens != "auto":
            return self.keep_tokens
        return backend.context_length if backend.threads else None

    @property
    def quota(self) -> int:
        """How many sessions one client may have in use at once."""
        given = self.max_sessions_per_client
        return share_of_one_client(self.max_sessions) if given == "auto" else given

    def _check_draft(self) -> None:
        if self.draft == BY_HEAD and self.backend not in WITH_HEADS:
            others = " or ".join(WITH_HEADS)
            raise ValueError(f"draft: the engine {self.backend} runs no head of a model: set backend to {others}")
        if self.draft_head is not None:
            if self.backend != "llama_cpp":
                raise ValueError(f"draft_head: the engine {self.backend} takes no file with a head: leave it out")
            if not (os.path.isfile(self.draft_head) or (self.hf is not None and str(self.draft_head) in HEADS)):
                raise ValueError(f"draft_head: {_no_file(self.draft_head)}")
            if self.draft in (BY_MODEL, OFF):
                raise ValueError(f"draft_head: draft is {self.draft}: leave one of the two out")
        for name in ("draft_model", "draft_hf", "draft_backend"):
            if getattr(self, name) is not None and self.draft in (BY_HEAD, OFF):
                raise ValueError(f"{name}: draft is {self.draft}: leave one of the two out")
        if self.drafts or self.draft_engine not in TOKEN_ENGINES:
            check_draft(self.draft_engine)
        for name in ("draft_model", "draft_hf"):
            if getattr(self, name) is not None and self.draft_engine == NGRAM:
                raise ValueError(f"{name}: {NGRAM} is a lookup in the text and takes no model: leave {name} out")
        if self.draft_backend is not None and not self.drafts:
            raise ValueError(f"draft_backend: {self.draft_backend} needs a model: set draft_model, too")
        for name in ("draft_weights", "draft_corpus", "draft_slots", "draft_threads", "draft_device"):
            if not self.drafts and getattr(self, name) != OPTIONS[name].usual:
                raise ValueError(f"{name}: there is no draft model: set draft_model, too")
        try:
            checked(self.draft_corpus)
        except BadCorpus as error:
            raise ValueError(f"draft_corpus: {error}") from None
        if self.draft_model is not None and self.draft_engine == "llama_cpp" and not os.path.isfile(self.draft_model):
            raise ValueError(f"draft_model: {_no_file(self.draft_model)}")

    @property
    def draft_engine(self) -> str:
        """The draft model's engine, or `NGRAM`."""
        return self.draft_backend or self.backend

    @property
    def drafts(self) -> bool:
        """Whether the server drafts with a draft model or by lookup (mode fused)."""
        named = self.draft_model is not None or self.draft_hf is not None or self.draft_engine == NGRAM
        return named and self.draft not in (BY_HEAD, OFF)

    @property
    def head_on_hub(self) -> str | None:
        """The kind of head that is fetched beside the target, if its repository has one in a file of its own; None: no
        head is fetched."""
        if self.backend != "llama_cpp" or self.hf is None or self.draft not in (AUTO, BY_HEAD):
            return None
        if self.draft_head is None:
            return HEADS[0]
        return str(self.draft_head) if str(self.draft_head) in HEADS else None

    def draft_slots_for(self, slots: int) -> int:
        """How many texts the server drafts for at once, for a target with `slots` slots."""
        return min(slots, MOST_DRAFT_SLOTS) if self.draft_slots == "auto" else self.draft_slots

    def draft_options(self, slots: int, context_length: int, devices: int = 1) -> LoadOptions:
        """Load options of the draft model, beside a target with `slots` slots of `context_length` tokens on `devices`
        devices.

        `deterministic` stays off: the draft model's logits do not affect the text. Its KV cache is of the target's
        type, or of the smallest that is precise enough for a draft model.
        """
        texts, same = self.draft_slots_for(slots), self.draft_engine == self.backend
        shared = self.load_options() if same else LoadOptions(batch_tokens=self.batch_tokens)
        return replace(
            shared,
            model=self.draft_model,
            slots=texts,
            contexts=texts,
            shared_cells=SPARE_CELLS * texts,
            spare_slots=texts,
            spare_from=SIZES.engine_context,
            # No text is longer than the target's context. Of one that is longer than the draft model's, parts are read.
            context_length=context_length if context_length < _USUAL_CONTEXT else None,
            threads=None if self.draft_threads == "auto" else self.draft_threads,
            device=self.draft_device or shared.device,
            deterministic=False,
            head=NO_HEAD,
            kv_type=DRAFT_KV[-1] if shared.kv_type in COARSE_KV else shared.kv_type,
            weights=self.draft_weights,
            tensor_parallel=devices_of_draft(self.draft_engine, self.backend, devices),
        )

    def load_options(self) -> LoadOptions:
        """Load options of the target model's engine."""
        options = LoadOptions(**option_values(LoadOptions, self))
        if self.backend in WITH_HEADS:
            options = replace(options, head=_HEADS[self.draft], head_file=self.draft_head)
        return options if self.backend == "scripted" else replace(options, model=self.model_path)


_HEADS = {AUTO: HEAD_IF_ANY, BY_HEAD: HEAD, BY_MODEL: NO_HEAD, OFF: NO_HEAD}


def _no_file(path: Path | None) -> str:
    """The error text for a path without a file."""
    if path is not None and path.is_dir():
        return f"{path} is a folder, and llama.cpp reads a GGUF file"
    return f"no such file: {path}"


class ListenAddress(LayeredSettings if TYPE_CHECKING else settings_model(LayeredSettings, ADDRESS)):  # type: ignore[misc]
    """Where the command `verifier` listens, and its certificate. Under uvicorn, its own flags say so."""

    if TYPE_CHECKING:
        host: str
        port: int
        workers: int | Auto
        share: bool
        ssl_certfile: Path | None
        ssl_keyfile: Path | None

    @model_validator(mode="after")
    def _possible(self) -> "ListenAddress":
        if self.workers not in ("auto", 1) and sys.platform == "win32":
            raise ValueError("workers: processes that share a port need Linux or macOS: leave it out")
        return self

    @property
    def processes(self) -> int:
        """How many processes serve HTTP; 1: the engine's does."""
        if self.workers != "auto":
            return self.workers
        return 1 if sys.platform == "win32" else max(1, min(MOST_WORKERS, cores() // CORES_OF_WORKER))

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that no layer sets."""
        return flag(name)


_NAMES = Names("verifier", ADDRESS | OPTIONS)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `VERIFIER_…` variables and `specpair.toml`, for a server whose address is set elsewhere.

    Raises SettingsError, which names the variable or the file and the key, for a bad value or a misspelt name. Other
    unknown variables are logged.
    """
    layers = _layers({}, None, environment)
    for layer in layers:
        for name in sorted(ListenAddress.model_fields.keys() & layer.values.keys()):
            _log.warning(
                "%s: only the command 'verifier' reads this %s; uvicorn takes %s",
                layer.key(name),
                layer.kind,
                flag(name),
            )
    return Settings.from_layers(layers)


def from_flags(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[Settings, ListenAddress]:
    """Settings from flags, the environment and `specpair.toml`, in this order of precedence.

    Raises SettingsError. With --help, --version or --print-config, prints it and exits.
    """
    return read_flags(flags_parser(OPTIONS), arguments, environment)[:2]


def read_flags(
    parser: Parser, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, ListenAddress, argparse.Namespace]:
    """`from_flags` with a `parser` of `flags_parser`. Also returns all parsed options, with the command's own."""
    options = parser.parse(arguments, optional=_NAMES.taken)
    given = {name: value for name, value in vars(options).items() if name in _NAMES.taken}
    layers = _layers(given, options.config, environment)
    settings, address = Settings.from_layers(layers), ListenAddress.from_layers(layers)
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [address, settings]))
        parser.exit()
    return settings, address, options


def _layers(given: Mapping[str, Any], config: Path | None, environment: Mapping[str, str]) -> list[Layer]:
    """All layers. `given`: the flags."""
    lasting = lasting_layers(_NAMES, config, environment, lambda warning: _log.warning("%s", warning))
    layers = [_NAMES.present(Layer("flag", given, flag)), *lasting]
    # An empty address is none, as in VERIFIER_PORT=$PORT without a PORT.
    for at, layer in enumerate(layers):
        values = {
            name: value for name, value in layer.values.items() if value != "" or name not in ListenAddress.model_fields
        }
        layers[at] = layer._replace(values=values)
    return layers


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, even if other settings are invalid. Raises SettingsError."""
    return first_path(_layers({}, config, environment), "keys_file")
