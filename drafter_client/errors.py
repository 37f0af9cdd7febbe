"""Errors on the drafter's side. Errors that the verifier reports are in `specpair.protocol.errors`."""

from specpair.drafters.base import BadDrafter as BadDrafter
from specpair.drafters.base import DrafterError as DrafterError
from specpair.drafters.base import StrategyRefused as StrategyRefused


class BadUrl(DrafterError):
    """The verifier's address is not a valid URL."""


class BadKey(DrafterError):
    """The API key cannot be sent, or the verifier does not accept it."""


class VerifierUnreachable(DrafterError):
    """No server answers at the verifier's address."""


class ConnectionLost(DrafterError):
    """The connection broke during a request; the same request can safely be sent again."""


class VerifierTimeout(DrafterError):
    """The verifier's response did not come in time."""


class BadReply(DrafterError):
    """The verifier's response does not follow the protocol."""


class ModelChanged(DrafterError):
    """After an outage in the middle of a text, the verifier serves another model than the one that began the text."""


class OtherModel(ModelChanged):
    """One of several verifiers serves another model than the text's; another verifier may continue the text."""


class VocabularyMismatch(DrafterError):
    """A token id has different meanings in the vocabularies of drafter and verifier."""


class BadOption(DrafterError):
    """An option has an invalid value."""


class PairBusy(DrafterError):
    """More texts are generated at once than the pair was made for."""


class BadPrompt(DrafterError):
    """The prompt is missing, unreadable, too long, or not text."""


class BadPromptFile(BadPrompt):
    """A file is not a valid file of prompts; the message names the file and the line."""


class BadOutput(DrafterError):
    """The results of a file of prompts cannot be written to the given file."""


class OutputBusy(BadOutput):
    """Another run is writing its results to the same file."""


class ForeignOutput(BadOutput):
    """The file holds something other than results; it is left unchanged."""


class OtherResults(BadOutput):
    """The file holds results of other prompts or of other settings."""


class TraceError(DrafterError):
    """A trace cannot be written or read."""
