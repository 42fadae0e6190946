"""Why a valid request is refused: overload, its timeout, or a server that stops."""

from chairlift.core.errors import ChairliftError


class Rejected(ChairliftError):
    """The same request may succeed later; `retry_after_s`: when, if known."""

    status: int
    retry_after_s: int | None = None


class Overloaded(Rejected):
    status = 429

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(f"{message}; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class TooManyConnections(Rejected):
    retry_after_s = 1

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Stopping(Rejected):
    status = 503
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("the server is stopping; another one may take this request")


class OutOfTime(Rejected):
    status = 504

    def __init__(self) -> None:
        super().__init__("the request timed out; raise its timeout, or ask for less")
