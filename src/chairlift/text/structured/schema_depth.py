"""How deep the references of a JSON schema lead.

Always: no part that the grammar library may follow is left out. A schema whose references cannot be found by their
pointers alone counts as if each led to the deepest part, one after another.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from chairlift.text.structured.depth import MAX_SCHEMAS, Links
from chairlift.text.structured.places import BY_NAME
from chairlift.text.structured.source import check_optional, num_optional, wrong

_MAX_NESTED = 127  # that the library reads
_SHARED = ("$defs", "definitions")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BASES = ("$id", "id", "$anchor", "$dynamicAnchor")  # give references another meaning
_Object = dict[str, Any]


def check_depth(schema: _Object) -> None:
    """Raises `InvalidRequest`."""
    objects = list(_objects(schema))
    if (nested := max(level for level, _ in objects)) > _MAX_NESTED:
        raise wrong(
            f"not a JSON schema: {nested} objects and lists, one inside of another, are more than {_MAX_NESTED}"
        )
    if (depth := _depth(schema, [each for _, each in objects])) > MAX_SCHEMAS:
        why = f"references lead {depth} schemas deep, one inside of another, and {MAX_SCHEMAS} are the most"
        raise wrong(f"{why}; refer to fewer, or write schemas where they are used")
    check_optional(num_optional(pattern) for _, each in objects for pattern in _patterns(each))


def _patterns(schema: _Object) -> Iterator[str]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        yield from named


def _objects(value: Any) -> Iterator[tuple[int, _Object]]:
    """With the number of objects and lists down to them; a list counts as an empty one."""
    waiting = [(1, value)]
    while waiting:
        level, value = waiting.pop()
        if isinstance(value, dict | list):
            yield level, value if isinstance(value, dict) else {}
            waiting += [(level + 1, each) for each in (value.values() if isinstance(value, dict) else value)]


def _depth(schema: _Object, objects: list[_Object]) -> int:
    found = {name: _target(schema, name) for each in objects for name in _references(each)}
    has_bases = any(isinstance(each.get(name), str) for each in objects[1:] for name in _BASES)
    if has_bases or None in found.values():
        return (len(found) + 1) * max(_links(schema, {}).levels.values())
    return _links(schema, found).depth()


def _references(schema: _Object) -> Iterator[str]:
    yield from (name for key in _REFERENCES if isinstance(name := schema.get(key), str))


def _target(schema: _Object, reference: str) -> Any:
    """None where the pointer leads nowhere."""
    if not reference.startswith("#"):
        return None
    target: Any = schema
    for name in unquote(reference[1:]).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            is_short = name.isdecimal() and len(name) <= len(str(len(target)))  # Python reads no number of any length
            target = target[int(name)] if is_short and int(name) < len(target) else None
        else:
            target = target.get(name) if isinstance(target, dict) else None
    return target


def _links(schema: _Object, found: dict[str, Any]) -> Links[int]:
    """Between the schemas that references lead to, by their ids in memory."""
    links = Links[int]()
    targets = {id(each) for each in found.values()}
    waiting: list[tuple[Any, int, int]] = [(schema, id(schema), 0)]  # with the one that it is a part of, and how deep
    while waiting:
        part, owner, level = waiting.pop()
        if isinstance(part, list):
            waiting += [(each, owner, level) for each in part]
        if not isinstance(part, dict):
            continue
        if id(part) in targets and id(part) != owner:
            links.add(owner, level, id(part))
            owner, level = id(part), 0
        level += 1
        links.add(owner, level)
        for name in _references(part):
            if name in found:
                links.add(owner, level, id(found[name]))
        for key, held in part.items():
            if key in _SHARED and isinstance(held, dict) and id(held) not in targets:
                waiting += [(each, id(each), 0) for each in held.values()]
            elif key in BY_NAME and isinstance(held, dict) and id(held) not in targets:
                waiting += [(each, owner, level) for each in held.values()]
            else:
                waiting.append((held, owner, level))
    return links
