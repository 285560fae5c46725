"""The cap on waiting tasks, as a state machine of tasks that come, wait and go."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gputask.controller.queue_limit import QueueLimit

MOST = 3


class Waiting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limit = QueueLimit(MOST, lambda uid: self.called.append(uid))
        self.called: list[str] = []
        self.inside: set[str] = set()
        self.outside: dict[str, float] = {}
        self.number = 0

    def look(self, uid: str, created: float, *, accepted: bool = False) -> None:
        before = len(self.inside)
        if self.limit.admits(uid, created=created, accepted=accepted):
            assert accepted or uid in self.inside or before < MOST
            self.inside.add(uid)
            self.outside.pop(uid, None)
        else:
            assert uid not in self.inside, "nobody who waits is dropped"
            self.outside[uid] = created
        while self.called:  # the operator looks again at whoever it is told of
            uid = self.called.pop()
            if uid in self.outside:
                self.look(uid, self.outside[uid])

    @rule(created=st.integers(0, 5), accepted=st.booleans())
    def comes(self, created: int, accepted: bool) -> None:
        self.number += 1
        self.look(f"t{self.number}", created, accepted=accepted)

    @rule(data=st.data())
    @precondition(lambda self: self.inside or self.outside)
    def is_looked_at_again(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.inside | self.outside.keys())))
        self.look(uid, self.outside.get(uid, 0))

    @rule(data=st.data())
    @precondition(lambda self: self.inside or self.outside)
    def goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.inside | self.outside.keys())))
        self.inside.discard(uid)
        self.outside.pop(uid, None)
        self.limit.leave(uid)
        while self.called:
            uid = self.called.pop()
            if uid in self.outside:
                self.look(uid, self.outside[uid])

    @invariant()
    def nobody_is_kept_out_of_an_empty_place(self) -> None:
        assert not self.outside or len(self.inside) >= MOST


TestWaiting = Waiting.TestCase
