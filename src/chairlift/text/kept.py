"""What was made of texts that clients send again and again, within a bound on their size.

Always: what was asked for longest ago is forgotten first, once the texts are longer together than the bound. A text
that nothing can be made of, or that is longer than the bound alone, is not kept. For several threads.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    def __init__(self, make: Callable[[K], V], size: Callable[[K], int], most: int) -> None:
        """`size`: characters of a key; `most`: of all of them."""
        self._make, self._size, self._most = make, size, most
        self._found: OrderedDict[K, V] = OrderedDict()
        self._num_characters = 0
        self._lock = Lock()

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        made = self._make(key)
        with self._lock:
            if key not in self._found and self._size(key) <= self._most:
                self._found[key] = made
                self._num_characters += self._size(key)
                while self._num_characters > self._most:
                    self._num_characters -= self._size(self._found.popitem(last=False)[0])
        return made
