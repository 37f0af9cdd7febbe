"""Random draft trees, and the paths through them in the plainest form."""

from collections.abc import Sequence

from hypothesis import strategies as st

from specpair.speculation.draft import Draft, DraftSource, DraftToken


@st.composite
def trees(draw: st.DrawFn, most: int = 7, ids: int = 10) -> Draft:
    """A draft whose tokens follow any earlier one, or the text. Tokens that follow the same one differ."""
    tokens: list[DraftToken] = []
    for index in range(draw(st.integers(0, most))):
        parent = draw(st.integers(1, index + 1))
        taken = {each.token for at, each in enumerate(tokens) if at - each.parent == index - parent}
        if left := sorted(set(range(ids)) - taken):
            token, source = draw(st.sampled_from(left)), draw(st.sampled_from(DraftSource))
            tokens.append(DraftToken(token, draw(st.floats(0.0, 1.0)), source, parent=parent))
        else:
            break
    return Draft(3, tuple(tokens))


def paths(drafts: Sequence[DraftToken]) -> list[list[int]]:
    """The token ids from the text to the text itself, and then to each draft token."""
    found: dict[int, list[int]] = {-1: []}
    for index, each in enumerate(drafts):
        found[index] = [*found[index - each.parent], each.token]
    return list(found.values())
