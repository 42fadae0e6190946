"""A call as it is read: begun once its name is known, with the schema of its arguments."""

from collections.abc import Mapping
from typing import Any

from chairlift.text.responses.reading.cursor import Cursor
from chairlift.text.responses.reading.sink import Sink
from chairlift.text.responses.tools.tool import Tool


class Call:
    """`is_bare`: no mark stands before the call, so only the name of a tool tells it from text."""

    def __init__(self, cursor: Cursor, sink: Sink, tools: Mapping[str, Tool], is_bare: bool) -> None:
        self._cursor, self._sink, self._tools = cursor, sink, tools
        self.is_bare = is_bare
        self.is_open = False
        self.num = 0
        self.parameters: Mapping[str, Any] = {}

    def begin(self, name: str) -> bool:
        """False where it is no call after all."""
        if self.is_open or not name or (self.is_bare and not self.num and name not in self._tools):
            return False
        self._cursor.forget()
        self._sink.begin(name)
        self.is_open, self.num = True, self.num + 1
        self.parameters = self._tools[name].parameters if name in self._tools else {}
        return True

    def arguments(self, text: str) -> None:
        self._sink.arguments(text)

    def end(self, is_whole: bool = True) -> None:
        if self.is_open:
            self._sink.end(is_whole)
        self.is_open = False
