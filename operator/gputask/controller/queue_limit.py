"""The cap on waiting tasks: a newcomer above it is refused until others have left; nobody who waits is dropped."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class QueueLimit:
    """``most`` tasks may wait; None is no limit. ``look_again(task UID)`` is told who may come in now, oldest first."""

    def __init__(self, most: int | None, look_again: Callable[[str], None]) -> None:
        self.most = most
        self._look_again = look_again
        self._inside: set[str] = set()
        self._outside: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []
        """A heap of (created, UID); who is not outside any more is dropped when its turn comes."""

    def admits(self, uid: str, *, created: float, accepted: bool) -> bool:
        """Whether this waiting task is in. So is always one that was in, or that was ever ``accepted``: it may come
        back evicted, or to a new leader."""
        if self.most is None:
            return True
        if uid not in self._inside and not accepted and not self._is_next(uid):
            if uid not in self._outside:
                self._outside[uid] = created
                heapq.heappush(self._order, (created, uid))
            return False
        self._inside.add(uid)
        self._outside.pop(uid, None)
        self._call_next()
        return True

    def leave(self, uid: str) -> None:
        """This task does not wait any more."""
        self._outside.pop(uid, None)
        if uid in self._inside:
            self._inside.discard(uid)
            self._call_next()

    def _is_next(self, uid: str) -> bool:
        return self._has_room() and self._first() in (None, uid)

    def _has_room(self) -> bool:
        return self.most is None or len(self._inside) < self.most

    def _first(self) -> str | None:
        while self._order and self._order[0][1] not in self._outside:
            heapq.heappop(self._order)
        return self._order[0][1] if self._order else None

    def _call_next(self) -> None:
        if self._has_room() and (first := self._first()) is not None:
            self._look_again(first)
