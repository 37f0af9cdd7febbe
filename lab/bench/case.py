"""The model of a case file: the fields are the keys of the file."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from specpair.command_line.layers import KnownKeys

Json = dict[str, Any]
Api = Literal["chat", "completions"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Keys(KnownKeys):
    model_config = ConfigDict(strict=True, frozen=True)


class Burst(_Keys):
    """`size` requests at once."""

    size: Count
    every: Positive


class Due(NamedTuple):
    """A request of a trace: seconds after the first request, and the lengths of its input and output."""

    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


class TraceFile(_Keys):
    """Arrivals of a file, in a form that `lab.request_traces` reads.

    `file`: relative to the case's file.
    `speed`: how many times faster than recorded.
    `lengths`: whether requests have the recorded lengths of input and output, too.
    `requests`: what the file has.
    """

    file: str
    speed: Positive = 1.0
    lengths: bool = True
    requests: list[Due] = Field(default_factory=list)


class Arrival(_Keys):
    """The arrival of requests: one of these. Without any, a closed loop: a request begins as another ends.

    `poisson`: requests arrive independently of each other, so many a second on average.
    `bursts`: a burst every so many seconds.
    """

    poisson: Positive | None = None
    bursts: Burst | None = None
    trace: TraceFile | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Arrival":
        if sum(value is not None for _, value in self) > 1:
            raise ValueError(f"an arrival is one of {_FORMS}")
        return self

    @property
    def is_closed(self) -> bool:
        return all(value is None for _, value in self)


_FORMS = "closed, {poisson: 2.0}, {bursts: {size: 8, every: 10}} and {trace: {file: t.csv}}"


def _keys_of_arrival(given: Any) -> Any:
    if isinstance(given, str) and given != "closed":
        raise ValueError(f"no form {given!r}; choose one of {_FORMS}")
    return {} if given == "closed" else given


class Sampling(_Keys):
    """Fields of a request that choose its tokens. `seed`: of every request; None: each has its own, from the run's."""

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None

    def fields(self) -> Json:
        """The given fields, without the seed."""
        return {name: value for name, value in self if value is not None and name != "seed"}


class Slo(_Keys):
    """Service level objective: bounds in milliseconds that a request must keep to be good; None: no bound."""

    ttft_ms: Positive | None = None
    itl_ms: Positive | None = None
    latency_ms: Positive | None = None


class Prompt(_Keys):
    """The prompt of one request, or of one conversation.

    `name`: in records; empty: its number.
    `text`, `messages`, `turns`: one of them. `turns` are what a user says in turn; each is a request, which has the
        answers of the turns before.
    `before`: stands before `text`, and is neither cut nor repeated.
    `body`: further fields of the request.
    """

    name: str = ""
    before: str = ""
    text: Annotated[str, Field(min_length=1)] | None = None
    messages: list[Json] | None = None
    turns: Annotated[list[str], Field(min_length=1)] | None = None
    body: Json = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one(self) -> "Prompt":
        given = [name for name in ("text", "messages", "turns") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a prompt has one of text, messages and turns, got {' and '.join(given) or 'none'}")
        return self

    @property
    def is_chat(self) -> bool:
        return self.text is None

    @property
    def requests(self) -> int:
        return len(self.turns) if self.turns is not None else 1

    def cut_to(self, characters: int | None) -> str:
        """The text to send, cut to `characters` and repeated as needed; None: unchanged."""
        assert self.text is not None, "a prompt of messages or turns"
        if characters is None:
            return self.before + self.text
        return self.before + (self.text * -(-characters // len(self.text)))[:characters]


class Case(_Keys):
    """A case.

    `name`: that of its file.
    `group`: the kind of work.
    `api`: how prompts of text are sent; `any`: as chats where every side has chats.
    `prompts`: requests take them by turns.
    `prompt_file`: JSON Lines with more of them, relative to the case's file.
    `system`: the system message, in chats.
    `requests`: in a repetition; of conversations, their number. None: one for each prompt, or for each line of a trace.
    `concurrency`: requests under way at most. None: 1 in a closed loop, else as many as arrive.
    `input_tokens`: prompts are cut, or repeated, until they have so many tokens.
    `output_tokens`: at most. `ignore_eos`: the model does not end a text earlier, where the endpoint can forbid it.
    `cache`: what a request may find of its prompt in the endpoint's cache, where that takes `cache_salt`. `cold`: the
        turns before it, and nothing else; `warm`: also what other requests of the repetition left there.
    `body`: further fields of each request, such as `tools`.
    """

    name: str = ""
    group: str
    description: str
    api: Literal["any", "chat", "completions"] = "any"
    prompts: list[Prompt] = Field(default_factory=list)
    prompt_file: str | None = None
    system: str | None = None
    requests: Count | None = None
    concurrency: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count = 256
    ignore_eos: bool = False
    cache: Literal["cold", "warm"] = "cold"
    arrival: Annotated[Arrival, BeforeValidator(_keys_of_arrival)] = Arrival()
    sampling: Sampling = Sampling()
    slo: Slo = Slo()
    body: Json = Field(default_factory=dict)

    @property
    def needs_chat(self) -> bool:
        """Whether the case needs an endpoint with chats."""
        return self.api == "chat" or any(prompt.is_chat for prompt in self.prompts)

    @property
    def jobs(self) -> int:
        """The number of requests in a repetition; a conversation counts once."""
        return self.requests if self.requests is not None else len(self.prompts)

    @property
    def most_at_once(self) -> int | None:
        """The most jobs under way at once; None: as many as arrive."""
        return self.concurrency or (1 if self.arrival.is_closed else None)
