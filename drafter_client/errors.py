"""What can go wrong on the drafter's side. Errors that the verifier reports are `speculation.errors`."""


class DrafterError(Exception):
    """Base. The message is one plain sentence that says what to do."""


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


class VocabularyMismatch(DrafterError):
    """A token id would mean one thing here and another there."""


class StrategyRefused(DrafterError):
    """The strategy does not go with what was asked for beside it."""


class BadPrompt(DrafterError):
    """The prompt is missing, unreadable or not text."""


class NoChatTemplate(DrafterError):
    """`--chat` with a model that has no chat template, or one that cannot be rendered."""
