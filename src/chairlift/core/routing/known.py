"""Every routing rule by the name that chooses it."""

from chairlift.core.routing.router import Router
from chairlift.core.routing.rules.by_user import ByUser
from chairlift.core.routing.rules.least_loaded import LeastLoaded
from chairlift.core.routing.rules.prefix import Prefix
from chairlift.core.routing.rules.round_robin import RoundRobin

ROUTERS: dict[str, type[Router]] = {
    "prefix": Prefix,
    "least-loaded": LeastLoaded,
    "round-robin": RoundRobin,
    "by-user": ByUser,
}
