"""What can go wrong on the drafter's side. Errors that the verifier reports are `speculation.errors`."""

from drafters.errors import BadDrafter as BadDrafter
from drafters.errors import DrafterError as DrafterError
from drafters.errors import StrategyRefused as StrategyRefused


class BadUrl(DrafterError):
    """The verifier's address cannot be one."""


class BadKey(DrafterError):
    """The API key cannot be sent, or is not the verifier's."""


class VerifierUnreachable(DrafterError):
    """Nothing answers at the address."""


class ConnectionLost(DrafterError):
    """The connection broke within an exchange; sending the same request again is safe."""


class VerifierTimeout(DrafterError):
    """No answer in time."""


class BadReply(DrafterError):
    """What answered does not speak the protocol."""


class ModelChanged(DrafterError):
    """A verifier that went away in the middle of a text came back with another model."""


class VocabularyMismatch(DrafterError):
    """A token id would mean one thing here and another there."""


class BadOption(DrafterError):
    """A choice about a text makes no sense."""


class PairBusy(DrafterError):
    """A pair is asked for more texts at a time than it was made for."""


class BadPrompt(DrafterError):
    """The prompt is missing, unreadable or not text."""


class BadPromptFile(BadPrompt):
    """A file of prompts is none; the message names the file and the line."""


class BadOutput(DrafterError):
    """Results cannot be written there."""


class OutputBusy(BadOutput):
    """Another run writes its results there."""


class ForeignOutput(BadOutput):
    """The file holds something else than results, and is left as it is."""


class OtherResults(BadOutput):
    """The file holds results of other prompts, or made with other settings."""


class NoChatTemplate(DrafterError):
    """`--chat` with a model that has no chat template, or one that cannot be rendered."""


class TraceError(DrafterError):
    """A profile cannot be written, or what was to be read is none."""


class NoPicture(DrafterError):
    """A picture cannot be drawn or written."""
