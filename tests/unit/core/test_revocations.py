"""The table of revocations: looked up, listed in order, and over when their time is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.policy.revocations import Revocation, RevocationKind, RevocationTable, name_of

NOW = 1000.0
SESSION, PRINCIPAL, CREDENTIAL = RevocationKind.SESSION, RevocationKind.PRINCIPAL, RevocationKind.CREDENTIAL


def revocation(
    value: str = "alice", kind: RevocationKind = PRINCIPAL, *, made: float = NOW, until: float | None = None
) -> Revocation:
    return Revocation(kind=kind, value=value, made=made, until=until)


def test_what_is_revoked_is_found_by_its_own_kind_only() -> None:
    table = RevocationTable([revocation("same", PRINCIPAL)])

    assert table.find(NOW, principal="same") == revocation("same", PRINCIPAL)
    assert table.find(NOW, session="same", credential="same") is None
    assert table.find(NOW, session="other", principal="same", credential=None) is not None
    assert table.find(NOW) is None


def test_values_are_compared_exactly() -> None:
    table = RevocationTable([revocation("alice")])

    assert table.find(NOW, principal="Alice") is None
    assert table.find(NOW, principal="alice ") is None
    assert table.find(NOW, principal="") is None


def test_a_revocation_is_in_force_until_its_end() -> None:
    table = RevocationTable([revocation(until=NOW)])

    assert table.find(NOW - 0.001, principal="alice")
    assert table.find(NOW, principal="alice") is None
    assert len(table) == 1, "it is over, and forgotten only when that is asked for"


def test_an_empty_table_says_so() -> None:
    table = RevocationTable()
    said = [table.empty]
    assert table.put(revocation())
    said.append(table.empty)
    assert table.drop(revocation().name) == revocation()
    assert table.drop(revocation().name) is None
    said.append(table.empty)
    assert said == [True, False, True]


def test_what_is_known_already_is_no_news() -> None:
    table = RevocationTable()

    assert table.put(revocation())
    assert not table.put(revocation())
    assert table.put(revocation(made=NOW + 1))
    assert table.get(revocation().name) == revocation(made=NOW + 1)


def test_kinds_are_counted_apart() -> None:
    table = RevocationTable(
        [
            revocation("a"),
            revocation("b"),
            revocation("a", SESSION),
            *(revocation(str(n), CREDENTIAL) for n in range(5)),
        ]
    )

    assert [table.count(kind) for kind in (SESSION, PRINCIPAL, CREDENTIAL)] == [1, 2, 5]


def test_what_is_over_is_due_once() -> None:
    table = RevocationTable([revocation("early", until=NOW + 1), revocation("ever")])
    table.put(revocation("late", until=NOW + 2))

    assert table.due(NOW) == []
    assert table.due(NOW + 1) == [revocation("early", until=NOW + 1)]
    assert table.due(NOW + 10) == [revocation("late", until=NOW + 2)]
    assert table.due(NOW + 10) == []
    assert [each.value for each in table] == ["ever"]


def test_one_that_was_made_anew_is_due_at_its_new_end() -> None:
    table = RevocationTable([revocation("longer", until=NOW + 1), revocation("for ever", until=NOW + 1)])
    table.put(revocation("longer", made=NOW + 0.5, until=NOW + 5))
    table.put(revocation("for ever", made=NOW + 0.5))

    assert table.due(NOW + 4) == []
    assert [each.value for each in table.due(NOW + 5)] == ["longer"]
    assert [each.value for each in table] == ["for ever"]


@given(
    st.lists(st.tuples(st.sampled_from(RevocationKind), st.text(max_size=3), st.booleans()), max_size=40),
    st.integers(1, 7),
)
def test_pages_list_everything_once_in_order(steps: list[tuple[RevocationKind, str, bool]], size: int) -> None:
    table, model = RevocationTable(), dict[str, Revocation]()
    for kind, value, stays in steps:
        if stays:
            table.put(revocation(value, kind))
            model[name_of(kind, value)] = revocation(value, kind)
        else:
            table.drop(name_of(kind, value))
            model.pop(name_of(kind, value), None)

    listed: list[Revocation] = []
    while page := table.after(listed[-1].name if listed else "", size):
        assert len(page) <= size
        listed += page

    assert listed == [model[name] for name in sorted(model)]
    assert table.empty is not bool(model)
    assert sum(table.count(kind) for kind in RevocationKind) == len(model) == len(table)
