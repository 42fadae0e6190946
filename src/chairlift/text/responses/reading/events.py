"""What a reader finds in an answer, in the order of the text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    index: int  # of the call in its answer, from 0
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments as JSON text; the pieces of a call joined are all of it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnds:
    """Comes for each call that began, also where the answer was cut inside it."""

    index: int


Event = Content | Reasoning | CallBegins | CallArguments | CallEnds
