"""Token ids that a program gives are checked, and a prediction becomes token ids.

The draft engine may read a prompt before the verifier can refuse it.
"""

from collections.abc import Sequence

from drafter_client.errors import BadOption
from drafter_client.options import Options
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.service_responses import ModelInfo


def foreign_id(tokens: Sequence[int], size: int) -> str | None:
    """The first of `tokens` that is no id of the target's vocabulary of `size` ids, in words; None: all are."""
    wrong = next((token for token in tokens if not 0 <= token < size), None)
    return None if wrong is None else f"{wrong}, which is no token id of the target: its ids are 0 to {size - 1}"


def prediction_ids(options: Options, target: ModelInfo, vocabulary: Vocabulary) -> list[int] | None:
    """The token ids of the prediction in `options`; None: it has none.

    `vocabulary`: the target's. Raises BadOption, and what encoding a text raises.
    """
    given = options.prediction
    if given is None:
        return None
    if isinstance(given, str):
        return vocabulary.encode(given, add_begin=False)
    if (wrong := foreign_id(given, target.vocabulary.size)) is not None:
        raise BadOption(f"the prediction holds {wrong}")
    return list(given)
