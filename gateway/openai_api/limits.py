"""Checks of a request against the target: its context, its vocabulary, and what can be done without delaying others."""

from collections.abc import Mapping, Sequence

from gateway.openai_api.messages.objects import shown
from gateway.openai_api.texts import Target
from specpair.protocol.errors import EmptyPrompt, InvalidRequest, PromptTooLong, TokenOutOfRange, UnknownModel

MOST_BIASES = 100_000  # entries of `logit_bias`, over all texts of a request


def check_model(name: str | None, target: Target) -> None:
    """Raise UnknownModel for the name of another model."""
    if name not in (None, "", target.name):
        raise UnknownModel(f"model: {str(name)[:80]!r} is not served here, {target.name!r} is", param="model")


def check_ids(name: str, ids: Sequence[int], target: Target) -> None:
    """Raise TokenOutOfRange for the first of `ids` that the target has not."""
    wrong = next((token for token in ids if not 0 <= token < target.vocabulary.size), None)
    if wrong is not None:
        raise TokenOutOfRange(
            f"{name}: {shown(str(wrong))} is no token id of this model: 0 to {target.vocabulary.size - 1}", param=name
        )


def check_bias(biases: Mapping[str, float], texts: int, target: Target) -> None:
    """Raise an error for an id that the target has not, and for more biases than can be applied without delay."""
    if len(biases) * texts > MOST_BIASES:
        raise InvalidRequest(
            f"logit_bias: {len(biases)} biases for {texts} texts, at most {MOST_BIASES // texts} are taken for each: "
            "send fewer texts in a request",
            param="logit_bias",
        )
    check_ids("logit_bias", [int(token) for token in biases], target)


def check_draft_n(draft_n: int | None, target: Target) -> None:
    """Raise InvalidRequest for more draft tokens in a round than the target judges at once."""
    if draft_n is not None and draft_n > target.max_drafts:
        raise InvalidRequest(
            f"speculative.draft_n: {draft_n} is more than the {target.max_drafts} draft tokens that the verifier "
            "judges at once",
            param="speculative.draft_n",
        )


def check_fits(name: str, tokens: int, target: Target, what: str = "tokens") -> None:
    """Raise EmptyPrompt or PromptTooLong for a prompt of so many tokens, or of parts that have a token each: `what`."""
    if not tokens:  # some vocabularies have no begin token and drop spaces: a prompt of spaces becomes empty
        raise EmptyPrompt(f"{name}: it is empty, as the model reads it: give at least one token", param=name)
    if tokens >= target.context_length:
        raise PromptTooLong(
            f"{name}: {tokens} {what}, the context holds {target.context_length} tokens with the answer: shorten it",
            prompt_len=tokens,
            context_length=target.context_length,
            param=name,
        )


def check_size(name: str, size: int, target: Target) -> None:
    """Raise PromptTooLong if `size` bytes are too many even in the vocabulary's longest tokens.

    To encode megabytes takes seconds.
    """
    least = size // target.vocabulary.longest
    if least >= target.context_length:
        raise PromptTooLong(
            f"{name}: {size} bytes are more than {least} tokens, the context holds {target.context_length} with the "
            "answer: shorten it",
            prompt_len=least,
            context_length=target.context_length,
            param=name,
        )
