"""The members' list: which engines there are on other machines, by what their nodes told last, and their numbers.

Always: a list that begins anew knows all members after a second, since each tells again. Nothing depends on it but who
is found: front ends keep their connections without it. Knows neither sockets nor clocks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from msgspec.structs import replace

from chairlift.live.nodes.messages import Leave, MemberEngine, Members, Tell
from chairlift.live.nodes.terms import EngineTerms, Refusal, Terms

KEPT_S = 60.0  # after a member was last listed


class Numbers:
    """Under which operators see engines of other machines, on the page, in `/admin/replicas` and in metrics.

    Always: the server's own engines have the first numbers, a new member the least that is free. A member that is gone
    has its number back if it comes again soon. So there are no more numbers than members at a time, but for those just
    gone.
    """

    def __init__(self, first: int, known: Mapping[str, int] | None = None) -> None:
        """`first`: after the server's own. `known`: of the list before this one."""
        self._first = first
        self.by_address: dict[str, int] = dict(known or {})
        self._listed: dict[str, float] = {}  # when each was last listed

    def give(self, addresses: Iterable[str], now: float) -> bool:
        """To those that are listed now; whether anything has changed."""
        before = dict(self.by_address)
        for address in self.by_address:
            self._listed.setdefault(address, now)
        listed = list(addresses)
        self._listed |= dict.fromkeys(listed, now)
        for address in [each for each, at in self._listed.items() if now - at >= KEPT_S]:
            del self._listed[address], self.by_address[address]
        taken = set(self.by_address.values())
        for address in listed:
            if address not in self.by_address:
                self.by_address[address] = next(number for number in count(self._first) if number not in taken)
                taken.add(self.by_address[address])
        return self.by_address != before


SILENT_S = 5.0  # after which a node is not listed


@dataclass(slots=True)
class Member:
    tell: Tell
    told: float


class MembersList:
    def __init__(self, terms: Terms, has_own: bool, numbers: Numbers | None = None) -> None:
        """`has_own`: the server has engines of its own, which say what the others must be like (`begin`)."""
        self.terms = terms
        self.numbers = numbers or Numbers(0)
        self._has_own = has_own
        self._members: dict[str, Member] = {}

    def begin(self, engine: EngineTerms) -> None:
        """An engine of the server itself is there."""
        self.terms = self.terms.after(engine)

    def hear(self, tell: Tell, now: float) -> Refusal | None:
        """A node tells what it is; why it is refused, if it is."""
        refusal = self.terms.refusal(tell)
        if refusal is not None:
            self._members.pop(tell.node, None)
            return refusal
        self._members[tell.node] = Member(tell, now)
        if tell.engines and not self._has_own:
            first = tell.engines[0]
            self.terms = self.terms.after(EngineTerms(first.fingerprint, first.span, first.max_tokens))
        return None

    def leave(self, message: Leave) -> list[str] | None:
        """The addresses of its engines; None: it was not there."""
        member = self._members.pop(message.node, None)
        return None if member is None else [engine.address for engine in member.tell.engines]

    def end_silent(self, now: float) -> list[Tell]:
        """Strikes nodes off that have not told anything for long; what they last told."""
        silent = [member.tell for member in self._members.values() if now - member.told >= SILENT_S]
        for tell in silent:
            del self._members[tell.node]
        return silent

    def last(self, node: str) -> Tell | None:
        """What a listed node told last."""
        member = self._members.get(node)
        return None if member is None else member.tell

    def members(self) -> Members:
        """None before it is known what they must be like; with the numbers that were given."""
        if self.terms.engines is None:
            return Members([])
        numbers = self.numbers.by_address
        # Of several nodes at one address the last one counts: those before are gone.
        engines: dict[str, MemberEngine] = {}
        for member in sorted(self._members.values(), key=lambda member: member.told):
            engines |= {engine.address: engine for engine in member.tell.engines}
        numbered = [replace(each, number=numbers.get(address, -1)) for address, each in engines.items()]
        return Members(numbered, [address for member in self._members.values() for address in member.tell.starting])

    def give_numbers(self, now: float) -> bool:
        """To all that are listed; whether any has changed."""
        return self.numbers.give([engine.address for engine in self.members().engines], now)
