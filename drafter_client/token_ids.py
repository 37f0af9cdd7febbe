"""Token ids that a program gives are checked, and a prediction becomes token ids.

The draft engine may read a prompt before the verifier can refuse it.
"""

from collections.abc import Sequence
from dataclasses import replace

from drafter_client.errors import BadOption
from drafter_client.options import Options
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.service_responses import ModelInfo


def foreign_id(tokens: Sequence[int], size: int) -> str | None:
    """The first of `tokens` that is no id of the target's vocabulary of `size` ids, in words; None: all are."""
    wrong = next((token for token in tokens if not 0 <= token < size), None)
    return None if wrong is None else f"{wrong}, which is no token id of the target: its ids are 0 to {size - 1}"


def with_prediction_ids(options: Options, target: ModelInfo, vocabulary: Vocabulary) -> Options:
    """These options with the token ids of their prediction, if they have one.

    `vocabulary`: the target's.

    Raises BadOption, and what encoding a text raises.
    """
    given = options.prediction
    if isinstance(given, str):
        return replace(options, prediction=vocabulary.encode(given, add_begin=False))
    if given is not None and (wrong := foreign_id(given, target.vocabulary.size)) is not None:
        raise BadOption(f"the prediction holds {wrong}")
    return options
