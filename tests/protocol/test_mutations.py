"""Each rule of the protocol is needed: without it the model finds the promise that breaks."""

import pytest

from protocol.documented import rows
from protocol.model.checks import violation
from protocol.model.explore import explore
from protocol.model.state import State
from protocol.model.trace import lines
from protocol.model.variations import MUTATIONS


def by_name(mutation):
    return mutation.name.replace(" ", "-")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=by_name)
def test_without_the_rule_a_promise_breaks(mutation):
    result = explore(mutation.bounds, mutation.rules)
    print(f"\n{mutation.name} (line {mutation.line}), found among {result.states:,} states:")
    print("\n".join(lines(result.trace, result.broken)))
    assert result.broken == mutation.first
    assert rows()[mutation.name] == [mutation.line, mutation.first, str(len(result.trace))]


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=by_name)
def test_without_the_rule_in_the_end(mutation):
    """The first that breaks is mostly the booking; what follows from it is the double use."""

    def worst(state: State) -> str | None:
        return mutation.worst if violation(state) == mutation.worst else None

    result = explore(mutation.bounds, mutation.rules, check=worst)
    print("\n".join(lines(result.trace, result.broken)))
    assert result.broken == mutation.worst
