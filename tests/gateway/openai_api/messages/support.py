"""Names and values of fields of requests, good and bad."""

from hypothesis import strategies as st

from gateway.openai_api.messages.fields import TABLE
from gateway.openai_api.messages.requests import ChatRequest, CompletionRequest

NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**30), 1e308])
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of surrogate pairs included
NAMES = sorted(
    {*CompletionRequest.model_fields, *ChatRequest.model_fields}.union(
        *({*beside.ignored, *beside.only} for beside in TABLE.values())
    )
)

VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
