"""`ProgramOptions`: the lasting settings of the program `drafter` beside those of texts and engines, each said once."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from backends.registry import NAMES, SHOWN, TEST_ENGINES
from drafter_client.http.retries import PATIENCE
from drafter_client.options import BRANCHES, VERIFIER, Options
from gateway.openai_api.tools.styles import AnswerOptions
from models import DEFAULT_DRAFT
from models.hub.names import HubOptions
from specpair import plugins
from specpair.command_line.parser import KEY, OneOf
from specpair.corpus.draft_corpus import CorpusOptions
from specpair.engines.load_options import DRAFT_KV, FASTEST, KV_TYPES, LoadOptions, check_draft_kv
from specpair.http_service.options import ACCESS, SERVICE, ServiceOptions
from specpair.options.option import like, option, settings_of
from specpair.speculation.policy.experience import policy_at

NGRAM = "ngram"  # a backend of the drafter only
# A branch takes a slot of the engine, KV cells and a place in each pass, and the tenth likeliest continuation is seldom
# right. An engine's own bound would report slots, not branches.
_MOST_BRANCHES = 64
_MOST_TEXTS = 64  # texts at a time: each has its own threads and connections
_LONGEST = 1e6  # seconds
ENGINE = settings_of(LoadOptions, "drafter")
ENGINE["context"] = ENGINE["context"].saying(ge=8)  # fewer are no room for a prompt and a draft
ENGINE["kv_type"] = ENGINE["kv_type"].saying(
    choices=OneOf(DRAFT_KV, KV_TYPES),  # `check` has the reason why one of the others is refused
    check=check_draft_kv,
    words=f"{ENGINE['kv_type'].about.words}; q8_0 is taken by itself where f16 does not fit into memory",
)


def engines(drafters: bool) -> OneOf:
    """The engines of draft models. `drafters`: what drafts without one, too."""
    groups = (plugins.BACKENDS, plugins.DRAFTERS) if drafters else (plugins.BACKENDS,)
    shown = (*SHOWN, NGRAM) if drafters else SHOWN
    return OneOf(shown, TEST_ENGINES, lambda: [name for group in groups for name in plugins.names(group)])


def is_plugged_drafter(backend: object) -> bool:
    """Whether a value of --backend names a drafter of another distribution, which runs no engine."""
    if backend in (*NAMES, NGRAM) or backend in plugins.names(plugins.BACKENDS):
        return False
    return backend in plugins.names(plugins.DRAFTERS)


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(AnswerOptions):
    """Flags, variables and keys are made from these fields, in groups of the help."""

    verifier: str = option(
        VERIFIER,
        "the verifier's address; for several verifiers of one model, addresses separated by commas",
        group="verifier",
        placeholder="URL",
    )
    api_key: SecretStr | None = option(
        None, "the verifier's API key, if it needs one (or DRAFTER_API_KEY)", group="verifier", placeholder=KEY
    )
    patience: float = option(
        PATIENCE,
        "how long to wait for a verifier that is away; the text continues when the verifier is back",
        ge=0,
        le=_LONGEST,
        group="verifier",
        placeholder="SECONDS",
    )
    chat: bool = option(False, "apply the model's chat template to the prompt", group="text")
    concurrency: int = option(1, "texts written at a time", ge=1, le=_MOST_TEXTS, group="many prompts")
    port: int = like(ServiceOptions, "port", "port to listen on; 0: any free port", default=8080)
    texts: int = option(
        4, "texts written at a time; each takes its own slots of the draft model", ge=1, le=_MOST_TEXTS, group=SERVICE
    )
    start_patience: float = option(
        20.0,
        "how long a new text waits for a verifier that is away, before its request gets 503",
        ge=0,
        le=_LONGEST,
        group=SERVICE,
        placeholder="SECONDS",
    )
    queue: int = option(
        16, "maximum number of waiting texts; further requests get 503 with Retry-After", ge=0, group=SERVICE
    )
    drain: float = option(
        20.0,
        "how long running texts have to finish after SIGTERM, while new texts are refused",
        ge=0,
        le=_LONGEST,
        group=SERVICE,
        placeholder="SECONDS",
    )
    serve_key: SecretStr | None = option(
        None, "API key that programs must send (or DRAFTER_SERVE_KEY)", group=ACCESS, placeholder=KEY
    )
    remember: bool = option(
        True, "in mode auto, use the measurements of earlier runs, and keep those of this run", group="drafting"
    )
    draft_model: Path = option(
        DEFAULT_DRAFT,
        "draft model file or folder",
        usually="the draft model that ships",
        group="drafting",
        placeholder="PATH",
    )
    draft_hf: str | None = like(
        HubOptions,
        "hf",
        "draft model on Hugging Face, as user/repo or user/repo:Q8_0; downloaded once into the cache",
        group="drafting",
    )
    draft_weights: str = like(LoadOptions, "weights", default=FASTEST, group="drafting")
    draft_corpus: tuple[Path, ...] = like(CorpusOptions, "draft_corpus")
    branches: int = option(
        BRANCHES,
        "continuations of the text to prepare drafts for, so that a draft is ready after a rejected token",
        ge=1,
        le=_MOST_BRANCHES,
        group="drafting",
    )
    policy: str | None = option(
        None,
        "class of your own that decides what is drafted, as module:Class (docs/research.md)",
        check=policy_at,
        group="drafting",
        placeholder="CLASS",
    )
    translate: bool = option(
        False,
        "allow a draft model with another vocabulary: its draft tokens are translated through text",
        group="drafting",
    )
    backend: str = option(
        "llama_cpp",
        "engine, or the name of a plug-in; ngram: no model, look up draft tokens in the text",
        choices=engines(drafters=True),
        group="engine",
    )


OPTIONS = settings_of(ProgramOptions, "drafter") | ENGINE | settings_of(Options, "drafter")
