"""Mistakes of users, as exceptions that name the field and the way out.

Every refusal the core or a parser makes is an `InvalidRequest`; servers turn it into an HTTP error, the command
line into one line. Anything else that escapes is a bug.
"""


class ChairliftError(Exception):
    """A mistake or failure; its text is shown to the user as it is."""


class InvalidRequest(ChairliftError):
    """A request that cannot be served as asked; `field` names the part to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class InvalidConfig(ChairliftError):
    """A setting, model folder or file that cannot be used; ends the program with exit code 2."""


class EngineUnavailable(ChairliftError):
    """The engine is starting, restarting or gone; the same request may succeed later."""
