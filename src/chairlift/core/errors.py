"""Mistakes of users, as exceptions that name the field and the way out.

Every refusal the core or a parser makes is an `InvalidRequest`; servers turn it into an HTTP error, the command
line into one line. Anything else that escapes is a bug.
"""


class ChairliftError(Exception):
    """A mistake or failure; its text is shown to the user as it is."""


class InvalidRequest(ChairliftError):
    """A request that cannot be served as asked; `field` names the part to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field  # may be replaced by the name that the client's body has for it
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ContextFull(InvalidRequest):
    """A prompt, or the output asked for after it, does not fit the model's context."""

    def __init__(self, field: str, why: str, *, context_len: int, num_prompt: int, is_counted: bool = True) -> None:
        """`num_prompt`: tokens of the prompt; about so many where not all were counted."""
        super().__init__(field, f"This model's maximum context length is {context_len} tokens; {why}")
        self.why = why
        self.context_len = context_len
        self.num_prompt = num_prompt
        self.is_counted = is_counted


class InvalidConfig(ChairliftError):
    """A setting, model folder or file that cannot be used; ends the program with exit code 2."""


class EngineUnavailable(ChairliftError):
    """The engine is starting, restarting or gone; the same request may succeed later."""
