"""Valid messages of every kind, for property-based tests."""

from typing import Any, get_args

from hypothesis import strategies as st

from specpair.protocol import messages, response_fields, responses, service_responses
from specpair.protocol.errors import Overloaded
from specpair.protocol.fingerprint import Fingerprint
from specpair.speculation.acceptance import token_details
from specpair.speculation.acceptance.judge import Decision, Verdict
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.distribution import TokenLogprobs

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
PENALTIES = st.floats(-2.0, 2.0)
BIASES = st.dictionaries(st.integers(0, 10**9 - 1).map(str), st.floats(-100.0, 100.0), max_size=3)
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
SAMPLINGS = st.builds(
    response_fields.SamplingReport,
    seed=st.integers(0, 2**53 - 1),
    temperature=st.floats(0.0, 100.0),
    top_k=COUNTS,
    top_p=st.floats(0.0, 1.0, exclude_min=True),
    strategy=st.sampled_from(Strategy),
    noise=NAMES,
    threshold=st.none() | st.floats(0.0, 1.0, exclude_max=True),
    min_p=SHARES,
    presence_penalty=PENALTIES,
    frequency_penalty=PENALTIES,
    repetition_penalty=st.floats(0.01, 100.0),
    min_tokens=COUNTS,
    logit_bias=BIASES,
)
LOGPROBS = st.builds(
    TokenLogprobs,
    token=COUNTS,
    logprob=st.floats(-1e9, 0.0),
    top=st.lists(st.tuples(COUNTS, st.floats(-1e9, 0.0)), max_size=3),
)
TIMINGS = st.builds(response_fields.Timing, queue_ms=MS, forward_ms=MS, sessions=COUNTS, tokens=COUNTS)
DECIDED: dict[str, Any] = {
    "decisions": st.none() | st.lists(st.none() | DECISIONS, max_size=3),
    "logprobs": st.none() | st.lists(st.none() | LOGPROBS, max_size=3),
}
MARKS = st.from_regex(token_details.PATTERN, fullmatch=True).map(token_details.split)
TOKENS: dict[str, Any] = {"position": COUNTS, "tokens": IDS, "sources": MARKS}
ENDED = st.none() | REASONS
VERIFIED = st.builds(
    responses.VerifyResponse,
    accepted=COUNTS,
    judged=COUNTS,
    unjudged=COUNTS,
    preds=IDS,
    total_tokens=SIZES,
    finish_reason=ENDED,
    timing=TIMINGS,
    **TOKENS,
    **DECIDED,
)
FAILED = st.builds(Overloaded, TEXTS, retry_after=COUNTS).map(responses.ErrorResponse.of)
SPECULATION = st.builds(
    responses.Speculation,
    rounds=COUNTS,
    drafted=COUNTS,
    accepted=COUNTS,
    acceptance_rate=st.none() | SHARES,
    mean_acceptance_length=st.none() | st.floats(1.0, 1e6),
    accepted_per_position=IDS,
    looked_up=COUNTS,
    looked_up_accepted=COUNTS,
    drafting_ms=MS,
    draft_failure=st.none() | NAMES,
)
RESPONSES: dict[str, st.SearchStrategy[response_fields.Response]] = {
    "prefill": st.builds(
        responses.PrefillResponse,
        session_id=SESSION_IDS,
        prompt_len=SIZES,
        prompt_ids=IDS,
        total_tokens=SIZES,
        finish_reason=ENDED,
        model=NAMES,
        vocabulary=FINGERPRINTS,
        sampling=SAMPLINGS,
        self_continue=st.booleans(),
        timing=TIMINGS,
        **TOKENS,
        **DECIDED,
    ),
    "verify": VERIFIED,
    "batch": st.builds(responses.BatchResponse, results=st.lists(VERIFIED | FAILED, max_size=3)),
    "error": FAILED,
    "text": st.builds(
        responses.GenerateResponse,
        session_id=SESSION_IDS,
        text=TEXTS,
        token_ids=IDS,
        prompt_tokens=SIZES,
        generated_tokens=COUNTS,
        finish_reason=REASONS,
        model=NAMES,
        mode=st.sampled_from(["target", "fused"]),
        sampling=SAMPLINGS,
        timing=TIMINGS,
        draft_model=st.none() | NAMES,
        speculation=st.none() | SPECULATION,
        sources=MARKS,
        **DECIDED,
    ),
    "text's tokens": st.builds(
        responses.GenerateTokensEvent,
        text=TEXTS,
        judged=st.none() | COUNTS,
        accepted=st.none() | COUNTS,
        **TOKENS,
        **DECIDED,
    ),
    "stream's tokens": st.builds(
        responses.StreamedTokens, target_decoded=st.booleans(), forward_ms=st.none() | MS, **TOKENS, **DECIDED
    ),
    "stream's end": st.builds(responses.StreamEnd, total_tokens=SIZES, finish_reason=REASONS),
    "health": st.builds(
        service_responses.HealthResponse,
        status=st.sampled_from(["ready", "loading", "failed"]),
        sessions=st.none() | COUNTS,
        progress=st.none() | SHARES,
        reason=st.none() | TEXTS,
    ),
    "model": st.builds(
        service_responses.ModelInfo,
        name=NAMES,
        engine=NAMES,
        context_length=SIZES,
        rows=SIZES,
        kv_bytes=COUNTS,
        max_drafts=COUNTS,
        pass_ms=st.lists(MS, max_size=3),
        wide_pass_ms=st.lists(st.tuples(st.integers(1, 8192), MS), max_size=3),
        strategies=st.lists(NAMES, max_size=3),
        self_continue=st.booleans(),
        modes=st.lists(NAMES, max_size=3),
        draft_model=st.none() | NAMES,
        draft_pass_ms=st.none() | MS,
        noise=NAMES,
        vocabulary=FINGERPRINTS,
        chat_template=st.none() | TEXTS,
    ),
    "vocabulary": st.builds(
        service_responses.VocabularyResponse,
        size=COUNTS,
        begin=st.none() | COUNTS,
        ends=IDS,
        kinds=st.text("012"),
        pieces=st.lists(st.text(st.characters(max_codepoint=255)), max_size=5),
    ),
}
REQUESTS: dict[str, st.SearchStrategy[messages.RequestModel]] = {
    "prefill": st.builds(
        messages.PrefillRequest,
        session_id=SESSION_IDS,
        prompt_ids=IDS,
        max_tokens=SIZES,
        seed=st.integers(0, 2**53 - 1),
        committed_ids=IDS,
        min_p=SHARES,
        presence_penalty=PENALTIES,
        frequency_penalty=PENALTIES,
        repetition_penalty=st.floats(0.01, 100.0),
        min_tokens=COUNTS,
        logit_bias=BIASES,
        logprobs=st.none() | st.integers(0, 20),
        next_in_ms=st.none() | st.floats(0.0, 1e7),
    ),
    "verify": st.builds(
        messages.VerifyRequest,
        position=COUNTS,
        draft_tokens=IDS,
        draft_parents=st.none() | IDS,
        draft_probs=st.none() | st.lists(st.dictionaries(COUNTS.map(str), SHARES, max_size=3), max_size=3),
        next_in_ms=st.none() | st.floats(0.0, 1e7),
        self_continue=st.none() | st.booleans(),
    ),
    "text": st.builds(messages.GenerateRequest, prompt=TEXTS, mode=st.just("fused"), draft_n=st.none() | COUNTS),
    "tokens": st.builds(messages.TokenizeRequest, text=TEXTS),
    "parts": st.builds(
        messages.TokenizeRequest,
        parts=st.lists(st.builds(messages.PromptPart, text=TEXTS, parse_control=st.booleans())),
    ),
}
