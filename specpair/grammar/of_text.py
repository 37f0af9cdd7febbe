"""The grammars that the options of a text ask for. llguidance is imported with the first one: it takes a tenth of a
second."""

from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.sampling.grammar import GrammarOptions
from specpair.speculation.sampling.processor_options import MakeGrammar
from specpair.speculation.sampling.row_changes import ProcessorChain, following
from specpair.speculation.text_options import TextSpec


def grammars_for(options: GrammarOptions, vocabulary: Vocabulary) -> MakeGrammar | None:
    """The grammars of a vocabulary, if these options ask for one; else None."""
    if options.grammar_text is None:
        return None
    from specpair.grammar.compiling import grammars_of

    return grammars_of(vocabulary)


def limits_of(spec: TextSpec, vocabulary: Vocabulary, prompt_len: int) -> ProcessorChain | None:
    """What limits the tokens of a text, to whatever drafts; None: nothing does. Raises InvalidRequest."""
    grammars = grammars_for(spec, vocabulary)
    return following(spec.drawn.processors(vocabulary.ends, grammars=grammars), prompt_len, limits=True)
