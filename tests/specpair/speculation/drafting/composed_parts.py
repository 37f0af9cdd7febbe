"""A small composed context, and its tokens, for tests of it and of its drafter."""

from collections.abc import Sequence

from specpair.speculation.drafting.composed_context import ComposedContext, ContextSizes, Span

SIZES = ContextSizes(sink=4, window=12, most_window=24, before=4, after=8, pieces=2, match=3, sure=2, chunk=5)


def parts(context: ComposedContext, text: Sequence[int]) -> list[int]:
    return [token for part in (*context.head, Span(context.window, len(text))) for token in text[part.start : part.end]]


def prompt_of(length: int) -> list[int]:
    return [1 + at * 7 % 241 if at % 3 else 1 + at * at % 239 for at in range(length)]
