"""What a request carries beside its prompt and sampling parameters: who asks, how urgent it is, what it may share.

One value travels from the HTTP body to the scheduler, the trace and back. To add an attribute: a field here, one in the
body that clients send (`server/openai/requests.py`), and whatever uses it.
"""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    cache_salt: str = ""  # requests share cached prefixes only under the same salt
    priority: int = 0
    user: str = ""
    share: float = 1.0  # of its user beside others, where a policy deals in shares
    deadline_s: float | None = None  # after its arrival it is due; for policies

    @property
    def given(self) -> dict[str, Any]:
        """Those that differ from their defaults, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


NO_ATTRIBUTES = Attributes()
