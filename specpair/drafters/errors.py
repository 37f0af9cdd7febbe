"""Errors of drafters."""


class DrafterError(Exception):
    """Base of all errors on the drafter's side. The message is one plain sentence that says what to do."""


class BadDrafter(DrafterError):
    """A custom drafter returned something that breaks the drafter contract."""


class StrategyRefused(DrafterError):
    """The strategy is not possible with this drafter or these options."""
