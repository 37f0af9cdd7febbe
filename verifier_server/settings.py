"""The settings of a verifier, their checks, and what they mean for its engines. `flags` reads them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, create_model, model_validator

from backends.base import Backend, BackendError, LoadOptions, ModelLoadError
from backends.registry import SHOWN, devices_of_draft, known, listed
from backends.shipped_models import DEFAULT_TARGET
from command_line.errors import SettingsError as SettingsError
from command_line.given_values import path, readable
from command_line.layers import LayeredSettings
from command_line.options.reading import given
from command_line.options.setting_fields import setting_fields
from http_service.hosts import read_hosts
from http_service.keys.stored_key import complaint
from http_service.origins import read_origins
from specpair.options.option import settings_of
from verifier_server.limits import share_of_one_client

PREFIX = "VERIFIER_"
NGRAM = "ngram"  # the draft engine without a model: n-gram lookup
_DRAFT_ROWS = 8  # texts drafted for at once, at most, if `draft_rows` is auto
_USUAL_CONTEXT = 4096  # tokens; by default, engines take a model's trained context length up to this one
Positive = Annotated[int, Field(ge=1)]
GivenPath = Annotated[Path | None, BeforeValidator(path)]


ENGINE = settings_of(LoadOptions, "verifier")
_THREADS = ENGINE["threads"].about

if TYPE_CHECKING:
    _OfEngine = LayeredSettings
else:
    _OfEngine = create_model("_OfEngine", __base__=LayeredSettings, **setting_fields(ENGINE))


class Settings(_OfEngine):
    """The settings of a verifier. The field descriptions are the help texts and the reference page."""

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...  # the settings of the engine

    alias: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="name of the model in replies and metrics (default: its own)"),
    ] = None
    backend: Annotated[str, Field(description=f"engine: {', '.join(SHOWN)}, or one of a plug-in")] = "llama_cpp"
    prefill_chunk: Annotated[
        Positive, Field(description="tokens of prompts in a pass while other sessions are active")
    ] = 128
    draft_model: Annotated[
        GivenPath, Field(description="draft model for server-side drafting (mode fused); default: none")
    ] = None
    draft_backend: Annotated[
        str | None,
        Field(description=f"engine of the draft model (default: the target's); {NGRAM}: n-gram lookup, no model"),
    ] = None
    draft_rows: Annotated[
        Literal["auto"] | Positive,
        Field(description=f"texts drafted for at once; auto: as many as rows, up to {_DRAFT_ROWS}"),
    ] = "auto"
    draft_threads: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=_THREADS.ge, le=_THREADS.le)],
        Field(description="CPU threads of a draft step"),
    ] = "auto"
    draft_device: Annotated[
        str | None, Field(description="torch: device of the draft model (default: the target's)")
    ] = None
    keep_tokens: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=0)],
        Field(
            description="tokens of ended texts whose KV cache is kept, for prompts that begin like them; auto: as many "
            "as the slots hold, on a CPU one context; 0: none"
        ),
    ] = "auto"
    share_prefixes: Annotated[
        bool,
        Field(
            description="use the KV cache of one key's texts for the prompts of others, who can tell by the time what "
            "was written"
        ),
    ] = False
    max_drafts: Annotated[int, Field(ge=1, description="draft tokens in one verify request")] = 64
    max_queue: Annotated[
        Positive,
        Field(
            description="requests waiting at once, at most three quarters of them from one client; beyond, 503 with "
            "Retry-After"
        ),
    ] = 256
    max_body_bytes: Annotated[int, Field(ge=1024, description="size of a request body")] = 4 * 1024 * 1024
    body_timeout: Annotated[
        float, Field(gt=0, description="seconds in which a request body must be there, plus one for each 32 KiB of it")
    ] = 10.0
    max_sessions: Annotated[
        Positive, Field(description="sessions kept at once; beyond, a new session replaces an idle one")
    ] = 1024
    max_sessions_per_client: Annotated[
        Literal["auto"] | Positive,
        Field(
            description="sessions that one client (a key, else an address) may have in use at once, and keep when "
            "others need places; auto: three quarters of all"
        ),
    ] = "auto"
    session_ttl: Annotated[float, Field(gt=0, description="seconds after which an idle session is forgotten")] = 900.0
    api_key: Annotated[
        SecretStr | None,
        Field(
            description="bearer key that every request must carry, except for the health checks and the documentation",
        ),
    ] = None
    keys_file: Annotated[
        GivenPath, Field(description="file with the hashes of several keys; 'verifier key new NAME' adds one")
    ] = None
    metrics_open: Annotated[bool, Field(description="serve /metrics without the key")] = False
    metrics_by_key: Annotated[bool, Field(description="count the metrics of each key apart, by its name")] = False
    log_format: Annotated[Literal["text", "json"], Field(description="log lines: text, or JSON objects")] = "text"
    access_log: Annotated[bool, Field(description="log a line for each request, but for health checks and scrapes")] = (
        False
    )
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="seconds that texts under way have to end after SIGTERM, while new ones are refused; 0: none",
        ),
    ] = 20.0
    insecure: Annotated[
        bool, Field(description="without a key, serve every address, not only loopback and private networks")
    ] = False
    allowed_hosts: Annotated[
        str,
        AfterValidator(readable(read_hosts)),
        Field(
            description="names, separated by commas, that the verifier answers to without a key, beside its machine's "
            "own; *: all (default: none)"
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        AfterValidator(readable(read_origins)),
        Field(
            description="origins whose web pages, apps or extensions may use the verifier, separated by commas; *: all "
            "(default: none)"
        ),
    ] = ""

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if not known(self.backend):
            raise ValueError(f"backend: {self.backend!r} is unknown, choose one of {', '.join(listed())}")
        if self.max_drafts >= self.batch_tokens:
            raise ValueError(f"max_drafts: {self.max_drafts} must be below batch_tokens ({self.batch_tokens})")
        if self.backend == "llama_cpp" and not os.path.isfile(self.model_path):
            raise ValueError(f"model: no such file: {self.model_path}")
        self._check_draft()
        if self.api_key is not None and (wrong := complaint(self.api_key.get_secret_value())) is not None:
            raise ValueError(f"api_key: {wrong}")
        for name in ("api_key", "keys_file"):
            if self.insecure and getattr(self, name) is not None:
                raise ValueError(f"insecure: it means no key is needed, but {name} is set: leave one of them out")
        return self

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The variable of a setting that was not given."""
        return PREFIX + name.upper()

    def explained(self, error: BackendError, *, of_draft: bool = False) -> str:
        """An engine's message, in which the setting at fault has the name by which the user gave it.

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

    def most_kept(self, backend: Backend) -> int | None:
        """Tokens of ended texts that are kept; None: as many as the slots of the engine hold.

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
        if self.draft_engine != NGRAM and not known(self.draft_engine):
            raise ValueError(
                f"draft_backend: {self.draft_engine!r} is unknown, choose one of {', '.join(listed())}, {NGRAM}"
            )
        if self.draft_model is not None and self.draft_engine == NGRAM:
            raise ValueError(f"draft_model: {NGRAM} is a lookup in the text and takes no model: leave draft_model out")
        if self.draft_backend is not None and not self.drafts:
            raise ValueError(f"draft_backend: {self.draft_backend} needs a model: set draft_model, too")
        for name in ("draft_rows", "draft_threads", "draft_device"):
            if not self.drafts and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: there is no draft model: set draft_model, too")
        if self.draft_model is not None and self.draft_engine == "llama_cpp" and not os.path.isfile(self.draft_model):
            raise ValueError(f"draft_model: no such file: {self.draft_model}")

    @property
    def draft_engine(self) -> str:
        """The draft model's engine, or `NGRAM`."""
        return self.draft_backend or self.backend

    @property
    def drafts(self) -> bool:
        """Whether the server can draft (mode fused)."""
        return self.draft_model is not None or self.draft_engine == NGRAM

    @property
    def mapped_files(self) -> list[Path]:
        """Model files that engines map into memory, and read as long as they run."""
        target = self.backend == "llama_cpp" and self.mmap
        draft = self.draft_model is not None and self.draft_engine == "llama_cpp"
        draft = draft and (self.mmap or self.draft_engine != self.backend)
        found = [self.model_path] if target else []
        return [*found, self.draft_model] if draft and self.draft_model is not None else found

    def draft_slots_beside(self, slots: int) -> int:
        """How many texts the server drafts for at once beside a target with `slots` slots."""
        return min(slots, _DRAFT_ROWS) if self.draft_rows == "auto" else self.draft_rows

    def draft_options(self, slots: int, context_length: int, devices: int = 1) -> LoadOptions:
        """Load options of the draft model, beside a target with `slots` slots of `context_length` tokens on `devices`
        devices.

        `deterministic` stays off: the draft model's logits do not affect the text.
        """
        same = self.draft_engine == self.backend
        shared = self.load_options() if same else LoadOptions(batch_tokens=self.batch_tokens)
        return replace(
            shared,
            model=self.draft_model,
            slots=self.draft_slots_beside(slots),
            # No text is longer than the target's context. In a shorter draft context, a long text slides.
            context_length=context_length if context_length < _USUAL_CONTEXT else None,
            threads=None if self.draft_threads == "auto" else self.draft_threads,
            device=self.draft_device or shared.device,
            deterministic=False,
            tensor_parallel=devices_of_draft(self.draft_engine, self.backend, devices),
        )

    def load_options(self) -> LoadOptions:
        """Load options of the target model's engine."""
        options = LoadOptions(**given(LoadOptions, self))
        return options if self.backend == "scripted" else replace(options, model=self.model_path)
