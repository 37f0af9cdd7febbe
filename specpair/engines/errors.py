"""The errors that an engine raises on purpose."""


class BackendError(Exception):
    """Base of all errors that an engine raises on purpose."""


class ModelLoadError(BackendError):
    """The model could not be loaded. The message names the file or setting and says what to do."""

    def __init__(self, message: str, setting: str | None = None) -> None:
        """`setting`: the name of the setting at fault, as `LoadOptions` or a program's settings spell it; the message
        begins with it."""
        super().__init__(message)
        self.setting = setting

    def called(self, name: str) -> str:
        """The message with `name`, a program's own name for the setting at fault, in place of the setting's."""
        return name + str(self).removeprefix(self.setting or "")


def first_line(error: BaseException) -> str:
    """The first line of a library's error message, for our own message to quote; `repr(error)` where it is empty."""
    return next(iter(str(error).strip().splitlines()), repr(error))


class NoRoom(ModelLoadError):
    """The model's KV cache does not fit into memory."""


class NoGenerator(ModelLoadError):
    """The model is for embeddings or ranking, or an encoder with a decoder: it does not write a text token by token."""

    def __init__(self, name: str, sign: str) -> None:
        """`sign`: the entry in the model's files that shows it."""
        super().__init__(
            f"{name} does not generate text token by token ({sign}): it is a model for embeddings, ranking or "
            "translation. Choose a causal language model"
        )


class EngineCrash(ModelLoadError):
    """The engine crashes its process on this machine, as a trial in a child process showed. Nothing was loaded."""


class BadEntry(BackendError):
    """A call names a slot, start, token id or logits range that the contract does not allow. Nothing was changed."""


class CacheFull(BackendError):
    """The KV cache cannot hold this batch. The batch's slots are now empty; refill them from their tokens."""


class EngineFailure(BackendError):
    """The engine failed in a forward pass. The batch's slots are now empty; refill them from their tokens."""


class EngineLost(EngineFailure):
    """The engine failed for good: every later pass raises this error, too, until the model is loaded again."""
