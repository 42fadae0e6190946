"""The replicas of a front end as operators see them."""

from collections.abc import Mapping

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.roster import Roster
from chairlift.live.wire.link import Link


def loads(links: Mapping[int, Link], known: Replicas, roster: Roster, watched: int | None) -> list[dict[str, object]]:
    """Each of these, by number. `watched`: the one that the live page shows."""
    return [
        {
            "replica": link.number,
            **link.shown(roster.is_drained(replica)),
            "is_watched": replica == watched,
            "queued_tokens": known.queued[replica] if link.is_ready else 0,
            "known_prefixes": known.prefixes.num_held(replica),
        }
        for replica, link in sorted(links.items(), key=lambda each: (each[1].number, each[0]))
    ]
