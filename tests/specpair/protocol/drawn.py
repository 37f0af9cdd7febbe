"""Valid messages of every kind, for property-based tests."""

from typing import Any, TypeVar, get_args

from hypothesis import strategies as st
from pydantic import BaseModel

from specpair.protocol import messages, response_fields, responses, service_responses
from specpair.protocol.errors import Overloaded
from specpair.protocol.fingerprint import Fingerprint
from specpair.speculation.acceptance import token_sources
from specpair.speculation.acceptance.judge import Decision, Verdict
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.distribution import TokenLogprobs

M = TypeVar("M", bound=BaseModel)
COUNTS = st.integers(0, 2**53)
SIZES = st.integers(1, 2**53)
IDS = st.lists(COUNTS, max_size=5)
MS = st.floats(0.0, 1e9)
SHARES = st.floats(0.0, 1.0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(categories=["L", "N", "P"]), max_size=20)
SESSION_IDS = st.from_regex(messages.SESSION_ID, fullmatch=True)
REASONS = st.sampled_from(["stop", "length"])
DECISIONS = st.builds(
    Decision,
    token=COUNTS,
    p=SHARES,
    draft=st.none() | COUNTS,
    draft_p=st.none() | SHARES,
    q=st.none() | SHARES,
    drawn=st.none() | SHARES,
    verdict=st.sampled_from(get_args(Verdict)),
)
FINGERPRINTS = st.builds(
    Fingerprint,
    size=SIZES,
    below=COUNTS,
    begin=st.none() | COUNTS,
    ends=IDS.map(tuple),
    ordinary=TEXTS,
    control=TEXTS,
    text=TEXTS,
)
LOGPROBS = st.builds(
    TokenLogprobs,
    token=COUNTS,
    logprob=st.floats(-1e9, 0.0),
    top=st.lists(st.tuples(COUNTS, st.floats(-1e9, 0.0)), max_size=3),
)
MARKS = st.from_regex(token_sources.PATTERN, fullmatch=True).map(token_sources.split)
BY_NAME: dict[str, st.SearchStrategy[Any]] = {  # of a field
    **dict.fromkeys(
        ("position", "accepted", "judged", "unjudged", "generated_tokens", "kv_bytes", "max_drafts"), COUNTS
    ),
    **dict.fromkeys(
        ("rounds", "drafted", "looked_up", "looked_up_accepted", "sessions", "top_k", "min_tokens"), COUNTS
    ),
    **dict.fromkeys(("prompt_len", "total_tokens", "prompt_tokens", "context_length", "rows", "max_tokens"), SIZES),
    **dict.fromkeys(("tokens", "preds", "prompt_ids", "token_ids", "committed_ids", "draft_tokens"), IDS),
    **dict.fromkeys(("accepted_per_position", "ends"), IDS),
    **dict.fromkeys(("queue_ms", "forward_ms", "drafting_ms"), MS),
    **dict.fromkeys(("model", "name", "engine", "noise", "identity"), NAMES),
    **dict.fromkeys(("strategies", "modes"), st.lists(NAMES, max_size=3)),
    **dict.fromkeys(("draft_model", "draft_failure"), st.none() | NAMES),
    **dict.fromkeys(("reason", "chat_template"), st.none() | TEXTS),
    **dict.fromkeys(("acceptance_rate", "progress"), st.none() | SHARES),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), st.floats(-2.0, 2.0)),
    "text": TEXTS,
    "session_id": SESSION_IDS,
    "sources": MARKS,
    "finish_reason": REASONS,
    "seed": st.integers(0, 2**53 - 1),
    "temperature": st.floats(0.0, 100.0),
    "top_p": st.floats(0.0, 1.0, exclude_min=True),
    "min_p": SHARES,
    "repetition_penalty": st.floats(0.01, 100.0),
    "logit_bias": st.dictionaries(st.integers(0, 10**9 - 1).map(str), st.floats(-100.0, 100.0), max_size=3),
    "logprobs": st.none() | st.lists(st.none() | LOGPROBS, max_size=3),
    "decisions": st.none() | st.lists(st.none() | DECISIONS, max_size=3),
    "mean_acceptance_length": st.none() | st.floats(1.0, 1e6),
    **dict.fromkeys(("draft_pass_ms", "head_pass_ms"), st.none() | MS),
    "pass_ms": st.lists(MS, max_size=3),
    "wide_pass_ms": st.lists(st.tuples(st.integers(1, 8192), MS), max_size=3),
    "vocabulary": FINGERPRINTS,
    "next_in_ms": st.none() | st.floats(0.0, 1e7),
}


def drawn(model: type[M], /, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[M]:
    """Values of a model: a field is drawn as `others` or `BY_NAME` say, else by its type if it is required."""
    return st.builds(model, **{name: BY_NAME[name] for name in model.model_fields if name in BY_NAME} | others)


TIMINGS = drawn(response_fields.Timing, tokens=COUNTS)
SAMPLINGS = drawn(
    response_fields.SamplingReport,
    strategy=st.sampled_from(Strategy),
    threshold=st.none() | st.floats(0.0, 1.0, exclude_max=True),
    logprobs=st.none(),
)
ENDED = st.none() | REASONS
VERIFIED = drawn(responses.VerifyResponse, finish_reason=ENDED, timing=TIMINGS)
FAILED = st.builds(Overloaded, TEXTS, retry_after=COUNTS).map(responses.ErrorResponse.of)
RESPONSES: dict[str, st.SearchStrategy[response_fields.Response]] = {
    "prefill": drawn(responses.PrefillResponse, finish_reason=ENDED, sampling=SAMPLINGS, timing=TIMINGS),
    "verify": VERIFIED,
    "batch": st.builds(responses.BatchResponse, results=st.lists(VERIFIED | FAILED, max_size=3)),
    "error": FAILED,
    "text": drawn(
        responses.GenerateResponse,
        mode=st.sampled_from(["target", "fused"]),
        sampling=SAMPLINGS,
        timing=TIMINGS,
        speculation=st.none() | drawn(responses.Speculation),
    ),
    "text's tokens": drawn(responses.GenerateTokensEvent, judged=st.none() | COUNTS, accepted=st.none() | COUNTS),
    "stream's tokens": drawn(responses.StreamedTokens, forward_ms=st.none() | MS),
    "stream's end": drawn(responses.StreamEnd),
    "health": drawn(
        service_responses.HealthResponse,
        status=st.sampled_from(["ready", "loading", "failed"]),
        **dict.fromkeys(("sessions", "generated_tokens"), st.none() | COUNTS),
        **dict.fromkeys(("model", "identity"), st.none() | NAMES),
    ),
    "model": drawn(service_responses.ModelInfo),
    "vocabulary": drawn(
        service_responses.VocabularyResponse,
        size=COUNTS,
        begin=st.none() | COUNTS,
        kinds=st.text("012"),
        pieces=st.lists(st.text(st.characters(max_codepoint=255)), max_size=5),
    ),
}
REQUESTS: dict[str, st.SearchStrategy[messages.RequestModel]] = {
    "prefill": drawn(
        messages.PrefillRequest, temperature=st.just(1.0), top_p=st.just(1.0), logprobs=st.none() | st.integers(0, 20)
    ),
    "verify": drawn(
        messages.VerifyRequest,
        draft_parents=st.none() | IDS,
        draft_probs=st.none() | st.lists(st.dictionaries(COUNTS.map(str), SHARES, max_size=3), max_size=3),
        self_continue=st.none() | st.booleans(),
    ),
    "text": st.builds(messages.GenerateRequest, prompt=TEXTS, mode=st.just("fused"), draft_n=st.none() | COUNTS),
    "tokens": st.builds(messages.TokenizeRequest, text=TEXTS),
    "parts": st.builds(
        messages.TokenizeRequest,
        parts=st.lists(st.builds(messages.PromptPart, text=TEXTS, parse_control=st.booleans())),
    ),
}
