"""`VerifierOptions`: the settings of a verifier without those of its engine."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.openai_api.tools.styles import AnswerOptions
from models.hub.names import HubOptions
from specpair.command_line.parser import KEY
from specpair.corpus.draft_corpus import CorpusOptions
from specpair.engines.load_options import FASTEST, LoadOptions
from specpair.http_service.options import ACCESS, ROUTER, SERVICE, BodyOptions
from specpair.options.option import AUTO, like, option, settings_of
from verifier_server.engine.choice import ENGINES, NGRAM

BY_HEAD, BY_MODEL, OFF = "head", "model", "off"  # what drafts on the server
MOST_DRAFT_SLOTS = 8  # texts drafted for at once, at most, if `draft_slots` is auto
CORES_OF_WORKER, MOST_WORKERS = 4, 4  # if `workers` is auto
MODEL, ENGINE, DRAFT, LIMITS = "model", "engine", "server-side drafting (mode fused)", "sessions and limits"
Auto = Literal["auto"]


def _alias(text: str) -> None:
    if not text:
        raise ValueError("is empty: give at least one character")


def _address(text: str) -> None:
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname)
        right = right and not (parts.query or parts.fragment or parts.username)
        _ = parts.port
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"{text!r} is no address of the form http://host:port")


def _table(text: str) -> dict[str, Any]:
    """The table that a variable or a flag holds: an inline table of TOML, or lines of keys. Raises ValueError."""
    inline = text.lstrip().startswith("{")
    try:
        table = tomllib.loads(f"table = {text}")["table"] if inline else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML table, such as {{tensor_parallel_size = 2}}: {error}") from None
    return dict(table)


@dataclass(frozen=True, kw_only=True)
class VerifierOptions(AnswerOptions):
    """The fields that define flags, variables and keys, in the groups of the help."""

    alias: str | None = option(
        None,
        "the model's name in responses and metrics",
        usually="the model's own",
        check=_alias,
        longest=200,
        group=MODEL,
        placeholder="NAME",
    )
    backend: str = option(
        "llama_cpp",
        f"engine: {', '.join(ENGINES)}, or the name of a plug-in",
        group=MODEL,
        placeholder="NAME",
    )
    chat_template: str | None = option(
        None,
        "file with a chat template in Jinja, or the name of a template in the model's files, such as tool_use",
        usually="the model's own",
        group=MODEL,
        placeholder="FILE",
    )
    hf: str | None = like(
        HubOptions,
        "hf",
        "model on Hugging Face, as user/repo or user/repo:Q8_0, instead of --model; downloaded once into the cache",
        short="-hf",
        group=MODEL,
    )
    compile_store: Path | None = option(
        None,
        "shared folder, for example on S3: `verifier compile` puts its compiled programs there when "
        "all are done, and verifiers copy them to compile_cache",
        usually="none",
        group=ENGINE,
        placeholder="FOLDER",
    )
    prefill_chunk: int | None = option(
        None,
        "maximum number of prompt tokens in a pass while other sessions are active",
        usually="as many as make a pass 1.5 times as long, at least 128",
        ge=1,
        group=ENGINE,
    )
    vllm_args: Mapping[str, Any] = option(
        factory=dict,
        words="vllm: engine arguments as a TOML table, for example {tensor_parallel_size = 2}",
        usually="none",
        reads=_table,
        group=ENGINE,
        placeholder="TABLE",
        hash=False,
    )
    sglang_url: str | None = option(
        None,
        "sglang: address of the running server, for example http://127.0.0.1:30000",
        check=_address,
        group=ENGINE,
        placeholder="URL",
    )
    sglang_api_key: SecretStr | None = option(
        None, "sglang: the server's --api-key", usually="none", group=ENGINE, placeholder=KEY
    )
    draft: str = option(
        AUTO,
        f"what drafts here; {AUTO}: the draft model, if one is named, and the target's head, if it has one or "
        f"draft_head names one (llama_cpp, torch); {BY_HEAD}: the head, or refuse to start; {BY_MODEL}: the draft "
        f"model alone; {OFF}: nothing",
        choices=(AUTO, BY_HEAD, BY_MODEL, OFF),
        group=DRAFT,
    )
    draft_head: Path | None = option(
        None,
        "llama_cpp: GGUF file with a head that drafts for the target (MTP, EAGLE-3, DFlash); with --hf also its kind, "
        "such as eagle3, of a file beside the target's",
        usually="the target's MTP head, if there is one",
        group=DRAFT,
        placeholder="FILE",
    )
    draft_model: Path | None = option(
        None, "draft model file or folder", usually="none", group=DRAFT, placeholder="PATH"
    )
    draft_hf: str | None = like(HubOptions, "hf", "draft model on Hugging Face, named as for --hf", group=DRAFT)
    draft_backend: str | None = option(
        None,
        f"engine of the draft model; {NGRAM}: n-gram lookup, no model",
        usually="the target's",
        group=DRAFT,
        placeholder="NAME",
    )
    draft_weights: str = like(LoadOptions, "weights", default=FASTEST, group=DRAFT)
    draft_corpus: tuple[Path, ...] = like(CorpusOptions, "draft_corpus", group=DRAFT)
    draft_slots: int | Auto = like(
        LoadOptions,
        "slots",
        f"texts with drafts at once; auto: as many as slots, at most {MOST_DRAFT_SLOTS}",
        formerly="draft_rows",
        group=DRAFT,
    )
    draft_threads: int | Auto = like(LoadOptions, "threads", "CPU threads of a draft step", group=DRAFT)
    draft_device: str | None = like(
        LoadOptions, "device", "torch: device of the draft model", usually="the target's", group=DRAFT
    )
    keep_tokens: int | Auto = option(
        AUTO,
        "tokens of finished texts to keep in the KV cache, for prompts with the same beginning; auto: "
        "as many as the slots hold, on a CPU one context; 0: none",
        auto=True,
        ge=0,
        group=LIMITS,
    )
    share_prefixes: bool = option(
        False,
        "use the KV cache of one API key's texts for prompts of other keys; response times can then "
        "reveal to one user what another wrote",
        group=LIMITS,
    )
    max_drafts: int = option(64, "maximum number of draft tokens in one verify request", ge=1, group=LIMITS)
    max_queue: int = option(
        256,
        "maximum number of waiting requests, at most three quarters of them from one client; further "
        "requests get 503 with Retry-After",
        ge=1,
        group=LIMITS,
    )
    max_body_bytes: int = like(BodyOptions, "max_body_bytes", group=LIMITS)
    body_timeout: float = like(BodyOptions, "body_timeout", group=LIMITS)
    max_sessions: int = option(
        1024, "maximum number of sessions; beyond that, a new session replaces an idle one", ge=1, group=LIMITS
    )
    max_sessions_per_client: int | Auto = option(
        AUTO,
        "maximum number of sessions that one client (an API key, else an address) has in use at once, and "
        "keeps when others need room; auto: three quarters of all",
        auto=True,
        ge=1,
        group=LIMITS,
    )
    session_ttl: float = option(
        900.0, "seconds after which an idle session is deleted", gt=0, group=LIMITS, placeholder="SECONDS"
    )
    drain_seconds: float = option(
        20.0,
        "seconds that running texts have to finish after SIGTERM, while new texts are refused; 0: none",
        ge=0,
        group=LIMITS,
        placeholder="SECONDS",
    )
    api_key: SecretStr | None = option(
        None,
        "API key that every request must carry as a bearer token, except health checks and documentation",
        group=ACCESS,
        placeholder=KEY,
    )
    workers: int | Auto = option(
        AUTO,
        f"processes that serve HTTP, in front of the one with the engine; 1: one process does both; auto: 1 on up to "
        f"{CORES_OF_WORKER} cores, else one for each {CORES_OF_WORKER}, at most {MOST_WORKERS}",
        auto=True,
        ge=1,
        le=64,
        group=SERVICE,
    )
    metrics_by_key: bool = option(False, "count metrics separately for each API key, by the key's name", group=SERVICE)


_GROUPS = (MODEL, ACCESS, ENGINE, DRAFT, LIMITS, SERVICE, ROUTER)
_ALL = settings_of(LoadOptions, "verifier") | settings_of(VerifierOptions, "verifier")
# uvicorn has its own of these
ADDRESS = {name: _ALL.pop(name) for name in ("host", "port", "workers", "share", "ssl_certfile", "ssl_keyfile")}
OPTIONS = dict(  # by setting
    sorted(_ALL.items(), key=lambda each: (_GROUPS.index(each[1].about.group), each[0] != "api_key"))
)
