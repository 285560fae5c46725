"""What a command prints: one shape as JSON, YAML or a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gputask.cli.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1
"""``schemaVersion`` of every JSON that scripts read. It grows when a field changes its meaning or goes."""


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(data: Mapping[str, Any], output: Format, table: Callable[[Console, Mapping[str, Any]], None]) -> None:
    """Print one document in the format asked for; ``table`` draws it for people."""
    if output is Format.TABLE:
        table(console(), data)
    else:
        sys.stdout.write(document(data, output))


def document(data: Mapping[str, Any], output: Format) -> str:
    """One document as text: one line of JSON, or one YAML document that starts with ``---``."""
    if output is Format.JSON:
        import msgspec

        return msgspec.json.encode(data).decode() + "\n"
    import yaml

    return yaml.safe_dump(data, sort_keys=False, explicit_start=True, allow_unicode=True, width=10_000)


def console() -> Console:
    """The terminal, or plain text of a fixed width where stdout is a pipe or a file."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)


def warn(line: str) -> None:
    """One line on stderr; the command goes on."""
    print(f"warning: {one_line(line)}", file=sys.stderr)
