"""How a command ends: exit codes that scripts can use, and errors that are one line each."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    FINE = 0
    FALSE = 1
    """The thing asked about is false: a rule was broken, a task is infeasible."""
    BAD_INPUT = 2
    NOT_REACHABLE = 3


def one_line(text: str) -> str:
    """The text with what would break its line, or a terminal, as escapes: names and keys of files may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class CommandError(Exception):
    """Ends a command with an exit code and with one line on stderr for each problem, nothing else."""

    code = Exit.FALSE

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(map(one_line, lines))
        super().__init__("\n".join(self.lines))

    @classmethod
    def of(cls, lines: Iterable[object]) -> CommandError:
        """The same from a list of problems."""
        return cls(*map(str, lines))


class BadInputError(CommandError):
    """What the user gave cannot be used; each line says where, which field, what is wrong, what would be right."""

    code = Exit.BAD_INPUT


class NotReachableError(CommandError):
    """No answer from the cluster."""

    code = Exit.NOT_REACHABLE
