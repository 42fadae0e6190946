"""The adapters that a server offers, by name: a file in the run folder that its front ends share.

    {"offered": {"sql": {"number": 81985529216486895, "name": "sql", "path": "/adapters/sql"}}, "unloaded": ["old"]}

Always: a name that is offered was checked against the model. Every load has a number of its own, drawn at random, so a
reload meets no prefix of the one before, and two servers that share an engine never mean the same. Only folders below
the adapters' folder are loaded while the server runs, through no symbolic link; in Python, any that the caller offers.
What is given by name at the start, or offered in Python, may lie on the hub.
Changes are made under a lock, and seen by all front ends at once.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock

import msgspec

from chairlift.config.model_words import is_name
from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.heartbeat import locked
from chairlift.models.adapters.peft import CONFIG_FILE
from chairlift.models.files import hub

_MAX_NAME = 200
_MAX_REFUSED = 1000  # folders
_NUMBER_BITS = 52  # exact in every JSON reader


class Adapter(msgspec.Struct, frozen=True):
    number: int  # of this load of it
    name: str
    path: str  # a folder that peft has saved


class _Offer(msgspec.Struct, frozen=True):
    offered: dict[str, Adapter] = {}
    unloaded: list[str] = []  # names in the adapters' folder that are not looked for


class UnknownAdapter(InvalidConfig):
    pass


class AdapterRegistry:
    def __init__(
        self,
        file: Path | None,
        folder: Path | None,
        taken: str,
        check: Callable[[Path], object],
        fetch: Callable[[str], Path] = hub.fetch,
    ) -> None:
        """`file`: None where no other process offers them. `folder`: of adapters, each a folder by its name. `taken`:
        the model's own name. `check` raises `InvalidConfig` for an adapter that cannot be served. `fetch` downloads
        one by its name on the hub."""
        self._file = file
        self._folder = None if folder is None else folder.resolve()
        self._taken = taken
        self._check = check
        self._fetch = fetch
        self._fetched: dict[str, Path] = {}  # by their names on the hub
        self._refused: dict[Path, tuple[object, str]] = {}  # what its files were like, and why
        self._seen: tuple[int, ...] = ()
        self._offer = _Offer()
        self._threads = Lock()  # of one process

    def start(self, named: tuple[tuple[str, Path], ...]) -> None:
        """Offers adapters that were given by name; once, before all front ends."""
        offered: dict[str, Adapter] = {}
        for name, path in named:
            self._check_name(name)
            if name in offered:
                raise InvalidConfig(f"--lora {name}: the name is given twice")
            offered[name] = self._checked(name, self._found(f"--lora {name}", str(path)))
        self._write(_Offer(offered))

    def known(self, name: str) -> Adapter | None:
        """One that is offered."""
        return self._read().offered.get(name)

    def is_new(self, name: str) -> bool:
        """Whether it is in the adapters' folder and was not read yet, which `find` does."""
        offer = self._read()
        return name not in offer.offered and self._is_below(name) and name not in offer.unloaded

    def find(self, name: str) -> Adapter | None:
        """One that is offered, or found now in the adapters' folder; raises `InvalidConfig` where it is broken."""
        return self.load(name, name, in_place=True) if self.is_new(name) else self.known(name)

    def names(self) -> list[str]:
        offer = self._read()
        below = sorted(path.name for path in self._folder.iterdir()) if self._folder is not None else []
        found = [name for name in below if self._is_below(name) and name not in offer.unloaded]
        return list(dict.fromkeys([*offer.offered, *found]))

    def offered(self) -> list[Adapter]:
        """Those that have a number."""
        return list(self._read().offered.values())

    def load(self, name: str, path: str, in_place: bool) -> Adapter:
        """Offers a folder below the adapters' folder by this name."""
        self._check_name(name)
        adapter = self._checked(name, self._inside(path))
        with self._changing():
            offer = self._read()
            if name in offer.offered and not in_place:
                raise InvalidConfig(f"lora_name: {name} is loaded already; load_inplace takes its place")
            unloaded = [each for each in offer.unloaded if each != name]
            self._write(_Offer({**offer.offered, name: adapter}, unloaded))
        return adapter

    def offer(self, name: str, path: str, in_place: bool) -> Adapter:
        """Offers any folder, or one on the hub, by this name, unless it has it already: for callers with the rights of
        this process."""
        self._check_name(name)
        folder = self._found("lora_path", path, is_anew=in_place)
        self.find(name)  # the adapters' folder may have it
        with self._changing():
            offer = self._read()
            known = offer.offered.get(name)
            if known is not None and not in_place:
                if known.path != str(folder):
                    raise InvalidConfig(
                        f"lora_path: {name} is {known.path} already, not {folder}; give another lora_name, or "
                        "load_inplace=True"
                    )
                return known
            if not folder.is_dir():
                raise InvalidConfig(
                    f"lora_path: {path[:_MAX_NAME]!r} is no folder, and no org/name on the hub; give one that peft has "
                    "saved"
                )
            adapter = self._checked(name, folder)
            self._write(_Offer({**offer.offered, name: adapter}, offer.unloaded))
        return adapter

    def remove(self, name: str) -> Adapter:
        """Offers it no more, to new requests."""
        found = self.find(name)
        with self._changing():
            offer = self._read()
            adapter = offer.offered.get(name)
            if adapter is None or found is None:
                raise UnknownAdapter(f"lora_name: {name[:_MAX_NAME]!r} is not loaded")
            left = {each: value for each, value in offer.offered.items() if each != name}
            kept = [each for each in offer.unloaded if self._is_below(each)]
            self._write(_Offer(left, [*kept, name] if self._is_below(name) else kept))
        return adapter

    def _found(self, field: str, path: str, is_anew: bool = False) -> Path:
        """The folder; of a name on the hub, which is asked once, the downloaded one. `field`: that named it."""
        folder = Path(path).expanduser().resolve()
        if folder.is_dir() or not is_name(path):
            return folder
        if is_anew or path not in self._fetched:
            try:
                self._fetched[path] = self._fetch(path).resolve()
            except InvalidConfig as error:
                raise InvalidConfig(f"{field}: there is no such folder, and on the hub, {error}") from error
        return self._fetched[path]

    def _checked(self, name: str, path: Path) -> Adapter:
        """A folder that was refused is not read again before one of its files changes."""
        state = _state_of(path)
        if self._refused.get(path, (None, ""))[0] == state:
            raise InvalidConfig(self._refused[path][1])
        try:
            self._check(path)
        except InvalidConfig as error:
            self._refused = {**dict(list(self._refused.items())[-_MAX_REFUSED:]), path: (state, str(error))}
            raise
        return Adapter(1 + secrets.randbits(_NUMBER_BITS), name, str(path))

    def _check_name(self, name: str) -> None:
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
            raise InvalidConfig(f"lora_name: must be up to {_MAX_NAME} printable characters, got {name[:_MAX_NAME]!r}")
        if name == self._taken:
            raise InvalidConfig(f"lora_name: {name} is the model's own name")

    def _is_below(self, name: str) -> bool:
        """Whether it names a folder of an adapter, directly in the adapters' folder."""
        if self._folder is None or Path(name).name != name or name.startswith("."):
            return False
        path = self._folder / name
        try:
            return name != self._taken and not path.is_symlink() and (path / CONFIG_FILE).is_file()
        except OSError:  # a name that no folder can have
            return False

    def _inside(self, path: str) -> Path:
        if self._folder is None:
            raise InvalidConfig("lora_path: adapters are loaded from below --lora-dir, and this server has none")
        given = Path(path)
        parts = given.parts
        if given.is_absolute():
            if not given.is_relative_to(self._folder):
                raise InvalidConfig(f"lora_path: must lie below --lora-dir, got {path[:_MAX_NAME]!r}")
            parts = given.relative_to(self._folder).parts
        if not parts or ".." in parts or "\0" in path:
            raise InvalidConfig(f"lora_path: must lie below --lora-dir, got {path[:_MAX_NAME]!r}")
        try:
            return _unlinked(self._folder, parts)
        except OSError as error:
            raise InvalidConfig(f"lora_path: {path[:_MAX_NAME]!r}: {error.strerror}") from None
        except InvalidConfig as error:
            raise InvalidConfig(f"lora_path: {path[:_MAX_NAME]!r} {error}") from None

    def _changing(self) -> AbstractContextManager[object]:
        return self._threads if self._file is None else locked(self._file.with_suffix(".lock"))

    def _read(self) -> _Offer:
        if self._file is None:
            return self._offer
        status = os.stat(self._file)
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._offer, self._seen = msgspec.json.decode(self._file.read_bytes(), type=_Offer), seen
        return self._offer

    def _write(self, offer: _Offer) -> None:
        if self._file is None:
            self._offer = offer
            return
        beside = self._file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(offer))
        os.replace(beside, self._file)


def _state_of(folder: Path) -> list[tuple[str, int, int]]:
    """Another one once a file of the folder is written again."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    except OSError:
        return []
    return [(name, facts.st_size, facts.st_mtime_ns) for name, facts in found]


def _unlinked(folder: Path, parts: Sequence[str]) -> Path:
    """The folder of this path below another; raises `InvalidConfig` where there is none, or it is linked."""
    found = folder
    for part in parts:
        found = found / part
        if found.is_symlink():
            raise InvalidConfig("goes through a symbolic link")
    if not found.is_dir():
        raise InvalidConfig("is no folder below --lora-dir")
    if any(each.is_symlink() for each in found.iterdir()):
        raise InvalidConfig("holds a symbolic link")
    return found
