"""Errors that people read. Each message is one sentence that names the field and the fix."""


class HexgenError(Exception):
    """Base of all errors the commands print without a traceback."""


class InvalidDocument(HexgenError):
    """A submission or definition is refused. `field` is its path in the document, such as `inputs.question`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """How it goes from one process to another: made of two values, not of the one it says."""
        return type(self), (self.field, self.message)


class StoreUnavailable(HexgenError):
    """Redis cannot be reached or does not serve now; trying again later may help."""


class StoreRefused(HexgenError):
    """Redis answers but will not do it (rights, memory policy, version): needs a person."""


class BadRecord(HexgenError):
    """An operation cannot work with what Redis holds of one thing: it fails again and again, while others are fine."""


class SeatLost(HexgenError):
    """What this process registered as an instance does not stand any more."""


class Superseded(SeatLost):
    """A later incarnation of this instance has registered; this one must stop."""

    def __init__(self, instance: str) -> None:
        super().__init__(f"instance {instance} has been started again elsewhere; this worker stops")


class Unregistered(SeatLost):
    """There is no such instance: the cell has lost its data, or forgot it in a long silence. It may register again."""

    def __init__(self, instance: str) -> None:
        super().__init__(f"instance {instance} is not registered any more")


class AttemptFailed(Exception):
    """An attempt at a request failed. `retryable` is False where another attempt must fail the same way.

    `prompt_tokens`: how long the prompt is, where it is too long for this engine; one with more room may take it.
    """

    def __init__(self, message: str, *, retryable: bool = True, prompt_tokens: int = 0) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.prompt_tokens = prompt_tokens


class IllegalTransition(HexgenError):
    """A state table has no entry for this event: a bug, never a user's mistake."""
