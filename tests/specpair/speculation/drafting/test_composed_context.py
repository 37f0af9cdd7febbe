"""The parts of a long text that a draft model has: they stay within their sizes, and pieces come as the text copies."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafting.composed_context import ComposedContext, ContextSizes, Span, named_piece
from tests.specpair.speculation.drafting.composed_parts import SIZES, parts, prompt_of


@given(
    st.integers(40, 400),
    st.lists(st.tuples(st.integers(0, 390), st.integers(1, 12)), max_size=8),
    st.lists(st.integers(1, 200), max_size=20),
)
def test_the_context_stays_within_its_sizes(length: int, copies: list[tuple[int, int]], others: list[int]) -> None:
    text, context = prompt_of(length), ComposedContext(length, SIZES)
    before = list[Span]()
    context.follow(text)
    for place, count in [*copies, *((0, 0) for _ in others)]:
        text = [*text, *text[place % length : place % length + count], *others[:1]]
        others = others[1:]
        context.follow(text)
        head, window = context.head, context.window
        assert len(parts(context, text)) <= SIZES.most and len(text) - window <= SIZES.most_window
        assert all(not left.overlaps(right) for left, right in pairwise(sorted([*head, Span(window, len(text))])))
        assert all(len(piece) <= SIZES.piece for piece in context.pieces) and len(context.pieces) <= SIZES.pieces
        kept = [piece for piece in before if piece in context.pieces]
        assert context.pieces[: len(kept)] == kept and len(context.pieces) <= len(kept) + 1, "one is new at most"
        before = list(context.pieces)


def pieces_of(context: ComposedContext, text: list[int]) -> list[Span]:
    context.follow(text)
    return list(context.pieces)


def test_a_copy_brings_the_piece_around_it() -> None:
    text, context = prompt_of(200), ComposedContext(200, SIZES)
    context.follow(text)
    assert pieces_of(context, [*text, *text[100:102]]) == []
    assert pieces_of(context, [*text, *text[100:103]]) == [Span(99, 111)] and context.window == 188
    assert pieces_of(context, [*text, *text[100:108]]) == [Span(99, 111)], "it is in the context"
    assert pieces_of(context, [*text, *text[100:112]]) == [Span(107, 119)], "what is copied goes on"


def test_a_match_inside_the_context_brings_nothing() -> None:
    text, context = prompt_of(200), ComposedContext(200, SIZES)
    context.follow(text)
    assert pieces_of(context, [*text, *text[190:198]]) == []
    assert pieces_of(context, [*text, *text[190:198], *range(220, 224)]) == [], "prose"


def test_a_third_place_has_to_be_sure() -> None:
    text, context = prompt_of(300), ComposedContext(300, SIZES)
    context.follow(text)
    for count, place in enumerate((50, 120), 1):
        text = [*text, *text[place : place + 3]]
        assert len(pieces_of(context, text)) == count
    two = list(context.pieces)
    text = [*text, *text[200:203]]
    assert pieces_of(context, text) == two
    _, new = pieces_of(context, [*text, text[203]])
    assert new not in two and 203 in new


def test_the_request_names_a_piece() -> None:
    sizes = ContextSizes(sink=16, window=64, before=32, after=96)
    text = [(at * at * 31 + at * 17) % 50_000 for at in range(3000)]
    asked = [*text, *range(60_000, 60_080), *text[1000:1006], 60_001, *text[1040:1046], 60_003]
    piece = named_piece(asked, sizes, len(asked) - 64)
    assert piece is not None and 1000 in piece and 1045 in piece and len(piece) <= sizes.piece
    assert named_piece([*text, *range(60_000, 60_140)], sizes, 3000) is None


def test_the_first_pieces_are_what_is_named_and_what_stands_before_the_window() -> None:
    sizes = ContextSizes(sink=16, window=64, before=32, after=96)
    text = [(at * at * 31 + at * 17) % 50_000 for at in range(3000)]
    text += [*range(60_000, 60_080), *text[1000:1006], 60_001, *text[1040:1046], 60_003]
    context = ComposedContext(len(text), sizes)
    context.follow(text)
    assert [len(context.pieces) for _ in context.first_pieces()] == [1, 2]
    named, longer = context.pieces
    assert 1000 in named and longer == Span(context.window - 128, context.window)
    assert [*context.first_pieces()] == [], "there are pieces"
    context.refuse(named)
    assert context.pieces == [longer]


def test_a_short_prompt_has_no_head_and_no_pieces() -> None:
    context = ComposedContext(10, SIZES)
    context.follow(prompt_of(10))
    assert context.head == [Span(0, 0)]
    assert [*context.first_pieces()] == [] and named_piece([], SIZES, 0) is None
    grown = prompt_of(10) + [9, 8, 7] * 6
    context.follow(grown)
    assert context.window == len(grown) - 12 and context.head[0] == Span(0, 4)
