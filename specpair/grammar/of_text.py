"""Makes the logit processors and grammars that a text's options ask for. The first grammar imports llguidance:
it takes a tenth of a second."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.grammar import GrammarOptions
from specpair.speculation.sampling.row_changes import ProcessorChain, following
from specpair.speculation.sampling.sampling import Sampling

if TYPE_CHECKING:
    from specpair.grammar.compiling import Grammars


def prepare_grammars(vocabulary: Vocabulary, *, tries: bool = True) -> None:
    """Read the vocabulary for grammars, if llguidance is installed: half a second for 150,000 ids, in which no other
    thread runs. Otherwise that comes with the first grammar.

    `tries`: whether a child process tries each grammar; not if another process has tried them.
    """
    if find_spec("llguidance") is None:
        return
    from specpair.grammar.compiling import grammars_of

    grammars_of(vocabulary, tries=tries).prepare()


def forget_grammars(vocabulary: Vocabulary) -> None:
    """Drop the grammars of a vocabulary, and end the child processes that try them. A later text makes them anew."""
    grammars = vocabulary.derived.pop("grammars", None)
    if grammars is not None:
        grammars.kill()


def grammars_for(options: GrammarOptions, vocabulary: Vocabulary) -> "Grammars | None":
    """The grammars of a vocabulary, if these options ask for one; else None."""
    if options.grammar_text is None:
        return None
    from specpair.grammar.compiling import grammars_of

    return grammars_of(vocabulary)


def processors_of(
    sampling: Sampling, vocabulary: Vocabulary, prompt_len: int, *, below: int | None = None, limits: bool = False
) -> ProcessorChain | None:
    """New logit processors of a text; None: it has none. Raises InvalidRequest for a grammar that cannot be used.

    `below`: how many ids a row has, where the text may hold others.
    `limits`: only those that limit the text, for whatever drafts without logits.
    """
    ends = [end for end in vocabulary.ends if below is None or end < below]
    made = sampling.processors(ends, below, grammars_for(sampling, vocabulary))
    return following(made, prompt_len, limits=limits)
