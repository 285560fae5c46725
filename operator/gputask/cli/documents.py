"""Kubernetes objects from YAML and JSON text, each with the line where it starts.

Stricter than a YAML parser, as a user would want it: a key that stands twice in one mapping is an error, timestamps
stay texts, and text that grows out of all proportion by its aliases is refused before it grows.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gputask.cli.errors import BadInputError

Manifest = dict[str, Any]

_SUFFIXES = (".yaml", ".yml", ".json")
_BETWEEN_JSON = re.compile(r"(\s+(---(?=\s))?)*")
_LONGEST_INTEGER = 100
_LARGEST_GROWTH = 1_000_000
"""How many values the aliases of one document may add to those that are written out."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file; a List is one document for each of its items."""

    file: str
    line: int | None
    value: object

    @property
    def place(self) -> str:
        """``FILE:LINE``, the start of every message about it."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


def read(names: Iterable[str]) -> list[Document]:
    """All documents of files, folders (their .yaml, .yml and .json files by name) and ``-`` (stdin).

    :raises BadInputError: one line for each file that cannot be read.
    """
    documents: list[Document] = []
    problems: list[str] = []
    for name in names:
        for path in _files(name, problems):
            try:
                text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
                documents += parse(text, "stdin" if path == "-" else path)
            except OSError as error:
                problems.append(f"{path}: cannot be read: {error.strerror}")
            except UnicodeDecodeError as error:
                problems.append(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8")
            except BadInputError as error:
                problems += error.lines
    if problems:
        raise BadInputError.of(problems)
    return documents


def parse(text: str, file: str) -> list[Document]:
    """All documents of one text.

    :raises BadInputError: one line, for the first thing that is no YAML or JSON.
    """
    if text.lstrip().startswith("{"):
        try:
            return list(_json_documents(text, file))
        except json.JSONDecodeError as error:
            # It may be YAML in braces: the YAML parser knows that as well, or says why not.
            if file.endswith(".json"):
                raise BadInputError(f"{file}:{error.lineno}: malformed JSON: {error.msg}") from None
        except RecursionError:
            raise BadInputError(f"{file}: malformed JSON: nested too deeply") from None
        except ValueError as error:
            raise BadInputError(f"{file}: {error}") from None
    try:
        return list(_yaml_documents(text, file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark else file
        raise BadInputError(f"{place}: malformed YAML: {_one_line(error.problem or error.context)}") from None
    except yaml.YAMLError as error:
        raise BadInputError(f"{file}: malformed YAML: {_one_line(error)}") from None
    except RecursionError:
        raise BadInputError(f"{file}: malformed YAML: nested too deeply") from None


def _files(name: str, problems: list[str]) -> list[str]:
    path = Path(name)
    try:
        if name == "-" or not path.is_dir():
            return [name]
        found = sorted(str(entry) for entry in path.iterdir() if entry.suffix in _SUFFIXES and entry.is_file())
    except OSError as error:
        problems.append(f"{name[:80]}: cannot be read: {error.strerror}")
        return []
    if not found:
        problems.append(f"{name}: no file in this folder ends in {', '.join(_SUFFIXES)}")
    return found


# --- JSON -------------------------------------------------------------------------------------------


def _json_documents(text: str, file: str) -> Iterator[Document]:
    """One JSON object, or several in a row, with or without ``---`` between them: kubectl reads those as well.

    :raises ValueError: one line; a :class:`json.JSONDecodeError` if it is no JSON.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_constant=_no_number)
    at = _after_gap(text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        value, end = decoder.raw_decode(text, at)
        yield from _items(file, line if at else None, value, None)
        at = _after_gap(text, end)


def _after_gap(text: str, position: int) -> int:
    found = _BETWEEN_JSON.match(text, position)
    return found.end() if found else position


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice[:80]!r} stands twice in one object; remove one")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        _no_number(digits)
    return int(digits)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no number that an API server takes; write at most {_LONGEST_INTEGER} digits")


# --- YAML -------------------------------------------------------------------------------------------


def _yaml_documents(text: str, file: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _refuse_growth(node)
            value = loader.construct_document(node)
            yield from _items(file, node.start_mark.line + 1, value, node)
    finally:
        loader.dispose()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without timestamps and with unique keys that are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the way to configure a loader
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, KeyError, ValueError):
            # A number of thousands of digits, or a text under a tag that says it is something else.
            _refuse(f"{str(node.value)[:20]!r} is no {node.tag.rpartition(':')[2]}", node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            _refuse("is tagged as a mapping and is none", node)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse("a key is a list or a mapping; write it as text", key)
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                _refuse(f"key {key.value[:80]!r} stands here twice; remove one", key)
            seen.add(key.value)
            # Kubernetes knows only texts as keys: `1: x` is the label "1".
            key.tag = "tag:yaml.org,2002:str"
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _refuse(problem: str, node: yaml.Node) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _refuse_growth(root: yaml.Node) -> None:
    """Count what the document would become with each alias written out, without writing it out."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            _refuse("an alias refers to what contains it", node)
        open_nodes.add(id(node))
        total = 1
        if isinstance(node, yaml.MappingNode):
            total += sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total += sum(size(value) for value in node.value)
        open_nodes.discard(id(node))
        sizes[id(node)] = total
        return total

    if size(root) - len(sizes) > _LARGEST_GROWTH:
        _refuse("its aliases make it far larger than it is written; write it out", root)


# --- lists ------------------------------------------------------------------------------------------


def _items(file: str, line: int | None, value: object, node: yaml.Node | None) -> Iterator[Document]:
    """A List is its items; nothing (an empty document) is nothing."""
    if value is None:
        return
    items = value.get("items") if isinstance(value, dict) and str(value.get("kind")).endswith("List") else None
    if not isinstance(items, list):
        yield Document(file, line, value)
        return
    for item, item_node in zip(items, _item_nodes(node, len(items)), strict=True):
        yield from _items(file, item_node.start_mark.line + 1 if item_node else line, item, item_node)


def _item_nodes(node: yaml.Node | None, length: int) -> list[yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "items":
                return list(value.value)
    return [None] * length


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
