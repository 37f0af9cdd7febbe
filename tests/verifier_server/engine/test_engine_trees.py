"""Trees in the engine: the text is that of plain decoding, the slot holds it, and each node is judged once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.speculation.draft import Draft, DraftToken
from specpair.speculation.sampling.sampling import Sampling
from tests.examples import examples
from tests.specpair.speculation import processed
from tests.verifier_server.engine.bench import Bench, plain, random_tree
from verifier_server.sessions import Session

SCRIPT = Script(seed=4, support=30, sharpness=1.5)
MODEL = ScriptedBackend(SCRIPT)
PROMPT = [256, 9, 9, 2]
SAMPLINGS = {"argmax": Sampling(), "sampled": Sampling(5, 1.0), "filtered": Sampling(6, 1.2, 5, 0.9)}
SETTINGS = pytest.mark.parametrize("sampling", [*SAMPLINGS.values(), *processed.SETTINGS.values()], ids=str)


def tree_of(*tokens: tuple[int, int]) -> Draft:
    """A draft behind the prompt and the first token, of ids and distances to their parents."""
    return Draft(len(PROMPT) + 1, tuple(DraftToken(token, parent=parent) for token, parent in tokens))


def drafted(bench: Bench, session: Session, right: list[int], seed: int) -> list[int]:
    """The whole text, in rounds of random trees, some of which are stale."""
    chance = random.Random(seed)
    while session.finish_reason is None:
        at = len(session.tokens) - session.prompt_len
        back = chance.choice([0, 0, 0, chance.randint(0, at)])
        some = right[at - back : at + chance.randint(0, 6)]
        draft = random_tree(chance, len(session.tokens) - back, some, 30)
        answer = bench.verify(session, draft.position, draft)
        assert answer.accepted == draft.accepted(answer.tokens) and answer.judged <= len(draft)
        if (number := bench.slot(session)) is not None:
            held = bench.scheduler.slots[session].held
            assert bench.backend.held[number][:held] == session.tokens[:held]
            assert held == len(session.tokens) - session.pending
    return session.tokens[session.prompt_len :]


@SETTINGS
@examples(8)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_logits=st.booleans(),
    rollback=st.sampled_from([None, 0]),
    any_path=st.booleans(),
)
def test_trees_do_not_change_the_text(
    sampling: Sampling, seed: int, top_logits: bool, rollback: int | None, any_path: bool
) -> None:
    backend = ScriptedBackend(SCRIPT, slots=1, has_top_logits=top_logits, max_rollback=rollback)
    backend.keeps_any_path = any_path
    bench, text = Bench(backend=backend), processed.plain(MODEL.logits_after, PROMPT, 30, sampling)
    assert drafted(bench, bench.open(PROMPT, max_tokens=30, sampling=sampling), text, seed) == text


@pytest.mark.parametrize(("any_path", "lacking"), [(True, 0), (False, 1)])
def test_a_second_choice_is_read_again_where_the_engine_needs_it(any_path: bool, lacking: int) -> None:
    bench, text = Bench(SCRIPT), plain(SCRIPT, PROMPT, 30, Sampling())
    bench.backend.keeps_any_path = any_path
    session = bench.open(PROMPT, max_tokens=30)
    wrong = next(token for token in range(30) if token != text[1])
    bench.verify(session, len(PROMPT))
    bench.verify(session, len(PROMPT) + 1, tree_of((wrong, 1), (text[1], 2)))
    assert session.tokens[len(PROMPT) :] == text[:3] and session.pending == 1 + lacking
    bench.verify(session, len(session.tokens), [])
    assert session.tokens[len(PROMPT) :] == text[:4] and session.pending == 1


def test_a_tree_is_cut_where_the_slot_has_no_more_room() -> None:
    """Each node takes a place in the slot, those at the same position, too."""
    bench, text = Bench(SCRIPT, context=16), plain(SCRIPT, PROMPT, 12)
    session = bench.open(PROMPT)
    bench.prefill(session)
    wrong = [each for each in range(30) if each not in text]
    tree = [(text[1], 1), *((each, 2 + at) for at, each in enumerate(wrong[:20]))]
    answer = bench.verify(session, 5, tree_of(*tree))
    assert (answer.accepted, answer.judged, answer.unjudged) == (1, 11, 10)
    assert drafted(bench, session, text, 2) == text


def test_an_engine_without_trees_says_how_much_of_one_it_left_out() -> None:
    backend, text = ScriptedBackend(SCRIPT), plain(SCRIPT, PROMPT, 12)
    backend.takes_trees = False
    bench = Bench(backend=backend)
    session = bench.open(PROMPT)
    bench.prefill(session)
    wrong = next(each for each in range(30) if each not in text)
    answer = bench.verify(session, 5, tree_of((text[1], 1), (wrong, 2), (text[2], 2)))
    assert (answer.accepted, answer.judged, answer.unjudged) == (2, 2, 1)


@pytest.mark.parametrize(("leaves", "nodes"), [(2, None), (None, 3), (1, None)])
def test_a_tree_is_cut_to_what_the_engine_takes(leaves: int | None, nodes: int | None) -> None:
    backend, text = ScriptedBackend(SCRIPT), plain(SCRIPT, PROMPT, 30)
    backend.max_leaves, backend.max_nodes = leaves, nodes
    bench = Bench(backend=backend)
    session = bench.open(PROMPT, max_tokens=30)
    bench.prefill(session)
    wrong = [each for each in range(30) if each not in text]
    answer = bench.verify(session, 5, tree_of((text[1], 1), (text[2], 1), (wrong[0], 3), (wrong[1], 4)))
    assert (answer.path, answer.judged) == ([0, 1], 2 if leaves == 1 else 3)
    assert drafted(bench, session, text, 3) == text
