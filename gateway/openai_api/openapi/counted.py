"""What examples tell of times and draft tokens."""

from specpair.http_service.openapi.operation import Json

COUNTED: Json = {
    "timings": {
        "cache_n": 0,
        "prompt_n": 4,
        "prompt_ms": 12.41,
        "prompt_per_second": 322.32,
        "predicted_n": 6,
        "predicted_ms": 15.58,
        "predicted_per_token_ms": 2.597,
        "predicted_per_second": 385.099,
        "draft_n": 2,
        "draft_n_accepted": 2,
    },
    "spec_decode": {
        "num_drafts": 1,
        "num_draft_tokens": 2,
        "num_accepted_tokens": 2,
        "num_accepted_tokens_per_pos": [1, 1],
    },
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 3.0,
            "draft_acceptance_rate": 1.0,
            "acceptance_histogram": [0, 0, 1],
            "num_spec_steps": 1,
            "num_accepted_draft_tokens": 2,
            "num_draft_tokens": 2,
            "num_spec_tokens": 2,
        }
    },
}
