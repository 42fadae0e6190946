"""What a request carries beside its prompt and sampling parameters: its user, urgency and cache salt.

One value travels from the HTTP body to the scheduler, the trace and back. To add an attribute: a field here, and its
use. Bounds hold for what clients give; the server may set other values.
"""

from dataclasses import dataclass, fields
from typing import Any

from chairlift.core.param_types import param, params_of

MAX_NAME_CHARACTERS = 1024  # names are kept with each request


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    cache_salt: str = param("", "Share cached prefixes only under the same salt", max_size=MAX_NAME_CHARACTERS)
    priority: int = param(0, "Rank among waiting requests, for policies that have ranks", -1000, 1000)
    user: str = param("", "User that sends it, for policies that share between users", max_size=MAX_NAME_CHARACTERS)
    share: float = param(1.0, "Weight of its user beside others, for policies that deal in shares", is_public=False)
    adapter: int = param(0, "Number of the adapter that it is computed with; 0: none", is_public=False)
    deadline_s: float | None = param(None, "Seconds from its arrival until it is due, for policies", above=0.0)
    group: str = param("", "Requests that one body asked for, which others take turns with", is_public=False)
    second_at: int = param(0, "Where the second of two texts begins; 0: there is one", is_public=False)

    @property
    def prefix_root(self) -> str:
        """What requests share cached prefixes under. No salt is equal to another adapter's."""
        if self.adapter:
            return f"\0{self.adapter}\0{self.cache_salt}"
        return f"\0\0{self.cache_salt}" if self.cache_salt.startswith("\0") else self.cache_salt

    @property
    def given(self) -> dict[str, Any]:
        """Attributes other than their defaults, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


NO_ATTRIBUTES = Attributes()
ATTRIBUTES = params_of(Attributes)  # by name
