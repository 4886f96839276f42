"""The contract of questions and answers: each question is given to one session, and its end is told once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.core.types import Attempt, RequestNumber
from gateway.ports import (
    KEPT_FOR,
    QUESTION_BYTES,
    TAKE_WITHIN,
    AnswerRead,
    AnswerResult,
    AnswerState,
    AskedAll,
    AskResult,
    AskState,
    Claimed,
    ExchangesLost,
    Fenced,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    Restored,
    SessionChanges,
)
from tests.contract.askers import CROWD, PARTITION, PUT, QUOTES, UNKNOWN, WAITING, Listener, User
from tests.contract.examples import expire_all, ownership, session
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually


@pytest.mark.promise("P1")
async def test_whoever_claims_a_session_is_told_what_it_handles(harness: Harness) -> None:
    """What it handles is part of its record: changed by its owner, claimed, read, and written again with it."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    handlers = {QUOTES: 32, 'odd/"name"': 1}
    await grid.sessions.change(ownership(record), SessionChanges(handlers=handlers))
    claimed = await grid.sessions.claim(
        record.id, by=node("n2"), token_generation=record.token_generation, attempt=Attempt(7)
    )
    assert isinstance(claimed, Claimed)
    assert claimed.record.handlers == handlers
    (restored,) = await grid.sessions.restore([replace(claimed.record, handlers={QUOTES: 1})], recreate=False)
    assert restored is Restored.WRITTEN
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.handlers == {QUOTES: 1}
    await grid.sessions.change(ownership(found), SessionChanges(handlers={}))
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.handlers == {}


async def test_a_question_is_put_taken_answered_and_forgotten(harness: Harness) -> None:
    """Everything that happens is told once, in order, and nothing is left in the end."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    listener = Listener(grid, await worker.handle(QUOTES))
    number = await asker.ask("who?", timeout=LONG)
    await eventually(lambda: len(listener.given(worker)) == 1, message="the question is given")
    (held,) = listener.given(worker)
    assert (held.asker, held.number) == (asker.id, number)
    assert await asker.look(number) == [WAITING]

    (taken,) = await worker.take(held)

    assert (taken.held, taken.text, taken.again) == (held, b"who?", False)
    assert LONG - 60 < taken.left <= LONG
    assert await worker.answer(held, "me") == AnswerResult(accepted=True, duplicate=False)
    await eventually(lambda: listener.over(asker) == [number], message="its end is told")
    assert await asker.look(number) == [AnswerRead(AnswerState.VALUE, b"me", 0.0)]
    assert await worker.held() == []
    await grid.exchanges.forget(asker.id, PARTITION, [number])
    assert await asker.look(number) == [UNKNOWN]
    await worker.handle()
    left = await harness.inventory()
    assert not [each for each in left if "question" in each or "answers" in each or "handler" in each], left
    await listener.close()


async def test_the_handler_with_the_fewest_is_given_a_question(harness: Harness) -> None:
    """And of several with as many, the one that was served longest ago."""
    grid = await harness.grid()
    asker, one, two = User(grid), User(grid), User(grid)
    await one.handle(QUOTES)
    await two.handle("quotes/*")
    both: dict[str, Any] = {"selectors": (QUOTES, "quotes/*")}
    for _ in range(3):
        await asker.ask(**both)
    first = await one.held()
    second = list((await two.handle("quotes/*")).held)
    assert [each.number for each in first] == [1, 3]
    assert [each.number for each in second] == [2]
    await one.take(*first)
    await one.answer(first[0], request=1)
    await one.answer(first[1], request=2)

    await asker.ask(**both)

    assert [each.number for each in await one.held()] == [4]


async def test_nobody_is_asked_who_does_not_handle_it_or_is_away(harness: Harness) -> None:
    """Nobody who is there handles its path; all who do have as many as they take."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    nothing = await asker.put(asker.question(1, selectors=()))
    assert nothing.results == (AskResult(AskState.NO_HANDLER, duplicate=False),)
    await worker.handle("quotes/other")
    other = await asker.put(asker.question(2, selectors=()))
    assert other.results == (AskResult(AskState.NO_HANDLER, duplicate=False),)
    await worker.handle(QUOTES, concurrency=1)
    asker.asked = 2
    await asker.ask()
    busy = await asker.put(asker.question(4))
    assert busy.results == (AskResult(AskState.BUSY, duplicate=False),)
    again = await asker.put(asker.question(4))
    assert again.results == (AskResult(AskState.BUSY, duplicate=True),), "refused for good"
    await worker.handle(QUOTES, concurrency=5, present=False)
    away = await asker.put(asker.question(5))
    assert away.results == (AskResult(AskState.NO_HANDLER, duplicate=False),)
    await worker.handle(QUOTES, concurrency=5)
    asker.asked = 5
    await asker.ask()


async def test_who_asks_learns_of_other_selectors(harness: Harness) -> None:
    """Nothing was done if the selectors are others; their revision tells them apart."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    await worker.handle(QUOTES, "quotes/ACME")
    told = await grid.exchanges.ask(asker.command(asker.question(1)))
    assert isinstance(told, HandlerSelectors)
    assert set(told.selectors) == {QUOTES, "quotes/ACME"}
    assert await asker.look(RequestNumber(1)) == [UNKNOWN]
    asker.revision = told.revision
    await worker.handle(QUOTES)
    newer = await grid.exchanges.ask(asker.command(asker.question(1)))
    assert isinstance(newer, HandlerSelectors)
    assert newer.revision != told.revision
    assert newer.selectors == (QUOTES,)


async def test_a_question_may_be_for_a_principal_or_a_session(harness: Harness) -> None:
    """Whose sessions alone may be given it, or which alone."""
    grid = await harness.grid()
    asker = User(grid)
    alice, bob, other = User(grid), User(grid, principal="bob"), User(grid, principal="bob")
    for each in (alice, bob, other):
        await each.handle(QUOTES)
    for _ in range(4):
        await asker.ask(principal="bob")
    assert len(await bob.held()) == len(await other.held()) == 2
    await asker.ask(session=other.id)
    assert len(await other.held()) == 3
    assert await alice.held() == []
    nobody = await asker.put(asker.question(6, principal="carol"), asker.question(7, session=asker.id))
    assert {each.state for each in nobody.results} == {AskState.NO_HANDLER}
    await other.handle("quotes/x")
    elsewhere = await asker.put(asker.question(8, session=other.id))
    assert elsewhere.results[0].state is AskState.NO_HANDLER


@pytest.mark.promise("P5")
async def test_a_question_is_put_once(harness: Harness) -> None:
    """A command with this request has the same answer, also if the first one was lost."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    await worker.handle(QUOTES)
    await asker.ask()
    command = asker.command(asker.question(2))
    again = await harness.asked_again(grid, lambda: grid.exchanges.ask(command))
    if isinstance(again, HandlerSelectors):  # of another generation of the grid
        asker.revision = again.revision
        again = await grid.exchanges.ask(asker.command(asker.question(2)))
    assert isinstance(again, AskedAll)
    assert again.results == (AskResult(AskState.PUT, duplicate=True),)
    assert [each.number for each in await worker.held()] == [1, 2]
    for held in await worker.held():
        await worker.take(held)
        await worker.answer(held, request=held.number)
    await grid.exchanges.forget(asker.id, PARTITION, [RequestNumber(2)])
    (gone,) = (await asker.put(asker.question(2))).results
    assert gone == AskResult(AskState.FORGOTTEN, duplicate=True)


@pytest.mark.promise("P5")
async def test_a_question_is_answered_once(harness: Harness) -> None:
    """Whoever has it, and once; asked again, the answer is the same."""
    grid = await harness.grid()
    asker, worker, other = User(grid), User(grid), User(grid)
    await worker.handle(QUOTES)
    number = await asker.ask()
    (held,) = await worker.held()
    await worker.take(held)
    assert await other.answer(held, "no") == AnswerResult(accepted=False, duplicate=False)
    again = await harness.asked_again(grid, lambda: worker.answer(held, "yes", request=7))
    assert again == AnswerResult(accepted=True, duplicate=True)
    assert await worker.answer(held, "again", request=8) == AnswerResult(accepted=False, duplicate=False)
    assert await worker.answer(held, "again", request=8) == AnswerResult(accepted=False, duplicate=True)
    assert await asker.look(number) == [AnswerRead(AnswerState.VALUE, b"yes", 0.0)]


async def test_why_a_question_could_not_be_answered_is_told(harness: Harness) -> None:
    """Its handler says that it cannot answer."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    await worker.handle(QUOTES)
    number = await asker.ask()
    (held,) = await worker.held()
    await worker.take(held)
    await worker.answer(held, '"no idea"', failed=True)
    assert await asker.look(number) == [AnswerRead(AnswerState.FAILED, b'"no idea"', 0.0)]


@pytest.mark.promise("P3")
async def test_a_former_owner_neither_asks_nor_handles_nor_answers(harness: Harness) -> None:
    """An epoch older than one that was here is refused."""
    grid = await harness.grid()
    user = User(grid)
    await user.handle(QUOTES)
    await user.ask()
    old = User(grid, user.record)
    user.epoch = 2
    (held,) = await user.held()
    await user.take(held)
    for step in (old.handle(QUOTES), old.take(held), old.answer(held)):
        with pytest.raises(Fenced):
            await step
    await user.ask()
    with pytest.raises(Fenced):
        await old.put(old.question(9))
    assert (await user.answer(held)).accepted


async def test_what_is_not_taken_in_time_is_given_to_another(harness: Harness) -> None:
    """Its handler's node is dead or its client slow; nobody is sent to it before it takes something."""
    grid = await harness.grid()
    asker, one, two = User(grid), User(grid), User(grid)
    await one.handle(QUOTES)
    listener = Listener(grid, await two.handle("quotes/*", present=False))
    await asker.ask(selectors=(QUOTES, "quotes/*"))
    await two.handle("quotes/*")
    await eventually(lambda: len(listener.given(one)) == 1, message="it is given to the first one")
    (late,) = listener.given(one)

    await harness.advance(TAKE_WITHIN)
    await grid.exchanges.fire(PARTITION)

    await eventually(lambda: len(listener.given(two)) == 1, message="another one is given it")
    assert await one.take(late) == []
    assert not (await one.answer(late)).accepted
    (held,) = listener.given(two)
    assert len(await two.take(held)) == 1
    await harness.advance(TAKE_WITHIN)
    await grid.exchanges.fire(PARTITION)
    assert (await two.answer(held)).accepted, "what was taken stays"
    await listener.close()


async def test_a_question_waits_for_its_handler_if_there_is_no_other(harness: Harness) -> None:
    """It is moved to one that comes later, too; who has it takes it whenever it can."""
    grid = await harness.grid()
    asker, one = User(grid), User(grid)
    await one.handle(QUOTES)
    await asker.ask()
    (held,) = await one.held()
    await harness.advance(TAKE_WITHIN)
    await grid.exchanges.fire(PARTITION)
    none = await asker.put(asker.question(2))
    assert none.results[0].state is AskState.NO_HANDLER, "whoever is too slow is asked nothing"
    assert len(await one.take(held)) == 1
    asker.asked = 2
    await asker.ask()
    assert (await one.answer(held)).accepted


async def test_what_is_not_answered_in_time_is_over(harness: Harness) -> None:
    """Whether it was taken is told; a late answer is refused, and nothing is left of it for long."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    listener = Listener(grid, await worker.handle(QUOTES))
    timeout = harness.short
    first, second = await asker.ask(timeout=timeout), await asker.ask(timeout=timeout)
    held, _ = await worker.held()
    await worker.take(held)
    await harness.advance(timeout)
    await grid.exchanges.fire(PARTITION)
    await eventually(lambda: sorted(listener.over(asker)) == [first, second], message="both are over")
    assert [each.state for each in await asker.look(first, second)] == [
        AnswerState.TIMED_OUT_TAKEN,
        AnswerState.TIMED_OUT,
    ]
    assert not (await worker.answer(held)).accepted
    assert await worker.held() == []
    await harness.advance(KEPT_FOR)
    await grid.exchanges.fire(PARTITION)
    assert await asker.look(first, second) == [UNKNOWN, UNKNOWN]
    await listener.close()


@pytest.mark.promise("P7")
async def test_a_handler_that_ends_loses_what_it_had(harness: Harness) -> None:
    """What it had taken is over, the rest is another's; nothing of the session is left."""
    grid = await harness.grid()
    record = session(window=harness.short, connected=False, partitions=frozenset({PARTITION}))
    await grid.sessions.create(record)
    asker, one, two = User(grid), User(grid, record), User(grid)
    await one.handle(QUOTES)
    taken, put, directed = await asker.ask(), await asker.ask(), await asker.ask(session=one.id)
    await one.take((await one.held())[0])
    await two.handle(QUOTES)
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]

    states = [each.state for each in await asker.look(taken, put, directed)]
    assert states == [AnswerState.LOST_TAKEN, AnswerState.WAITING, AnswerState.LOST]
    (held,) = await two.held()
    assert held.number == put
    left = {each for each in await harness.inventory() if record.id in each}
    assert not {each for each in left if "tombstone" not in each}
    with pytest.raises(Fenced):
        await one.handle(QUOTES)


@pytest.mark.promise("P7")
async def test_nothing_is_left_of_who_asked(harness: Harness) -> None:
    """What it asked is forgotten with it, and its handler may have as many others."""
    grid = await harness.grid()
    record = session(window=harness.short, connected=False, partitions=frozenset({PARTITION}))
    await grid.sessions.create(record)
    asker, other, worker = User(grid, record), User(grid), User(grid)
    await worker.handle(QUOTES, concurrency=1)
    await asker.ask()
    (held,) = (await worker.handle(QUOTES, concurrency=1)).held
    await worker.take(held)
    await harness.advance(harness.short)
    await expire_all(grid)

    assert not (await worker.answer(held)).accepted
    await other.ask()
    with pytest.raises(Fenced):
        await asker.put(asker.question(2))


@pytest.mark.promise("P20")
async def test_handlers_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition has as many selectors as it may; who handles already is not refused."""
    for module in ("gateway.adapters.memory.exchange_table", "gateway.adapters.redis.exchanges"):
        monkeypatch.setattr(f"{module}.MOST_SELECTORS", 2)
    grid = await harness.grid()
    one, two = User(grid), User(grid)
    await one.handle("quotes/a", "quotes/b")
    refused = await grid.exchanges.handle(
        ownership(two.record), PARTITION, "alice", Handling(("quotes/c",), 1, present=True)
    )
    assert refused is HandlingRefused.HANDLERS
    await one.handle("quotes/a", "quotes/b")
    await one.handle("quotes/a")
    await two.handle("quotes/c")


@pytest.mark.promise("P20")
async def test_questions_are_bounded(harness: Harness) -> None:
    """The partition has no room, in number or bytes; an answer that has none is told of as lost."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    asker.most, asker.most_bytes, worker.most_bytes = 2, 4000, 4000
    await worker.handle(QUOTES)
    await asker.ask()
    large = await asker.put(asker.question(2, "x" * 4000))
    assert large.results == (AskResult(AskState.FULL, duplicate=False),)
    asker.asked = 2
    await asker.ask()
    full = await asker.put(asker.question(4))
    assert full.results == (AskResult(AskState.FULL, duplicate=False),)
    held = (await worker.held())[0]
    await worker.take(held)
    assert (await worker.answer(held, "y" * 4000)).accepted
    assert await asker.look(held.number) == [AnswerRead(AnswerState.TOO_LARGE, b"", 0.0)]
    asker.most, asker.most_bytes = 0, 0
    assert (await asker.put(asker.question(5, "x" * 4000))).results == (PUT,), "without limits there is room"


@pytest.mark.promise("P20")
@pytest.mark.parametrize(("spare", "how"), [(0, AnswerState.VALUE), (-1, AnswerState.TOO_LARGE)])
async def test_an_answer_counts_as_a_question_and_its_bytes(harness: Harness, spare: int, how: AnswerState) -> None:
    """The bound includes what is counted for the question itself, also when it is answered."""
    grid = await harness.grid()
    asker, worker = User(grid), User(grid)
    text = "y" * 100
    await worker.handle(QUOTES)
    await asker.ask()
    await asker.ask("12345")
    worker.most_bytes = 2 * QUESTION_BYTES + len("12345") + len(text) + spare
    held = (await worker.held())[0]
    await worker.take(held)
    assert (await worker.answer(held, text)).accepted
    (read,) = await asker.look(held.number)
    assert read == AnswerRead(how, text.encode() if how is AnswerState.VALUE else b"", 0.0)


@pytest.mark.promise("P10")
async def test_a_grid_that_was_emptied_knows_no_question(fragile: Harness) -> None:
    """The exchanges do not go on; handlers are written again, and what was asked is unknown."""
    grid = await fragile.grid()
    asker, worker = User(grid), User(grid)
    listener = Listener(grid, await worker.handle(QUOTES))
    number = await asker.ask()
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    await eventually(lambda: ExchangesLost(PARTITION) in listener.items, message="the loss is told")
    assert await worker.held() == []
    assert await asker.look(number) == [UNKNOWN]
    await asker.ask()
    assert len(await worker.held()) == 1
    await listener.close()


@pytest.mark.promise("P10")
async def test_a_grid_that_has_gone_back_gives_no_tag_again(fragile: Harness) -> None:
    grid = await fragile.grid()
    asker, worker = User(grid), User(grid)
    await worker.handle(QUOTES)
    snapshot = await fragile.snapshot()
    await asker.ask()
    await asker.ask()
    known = {each.tag for each in await worker.held()}
    await fragile.restart(grid, snapshot=snapshot)
    await fragile.up(grid)

    await User(grid).ask()

    (held,) = await worker.held()
    assert held.tag > max(known)


@pytest.mark.promise("P10")
async def test_a_grid_that_was_restarted_knows_its_questions(fragile: Harness) -> None:
    """Who asks again what it has is told."""
    grid = await fragile.grid()
    asker, worker = User(grid), User(grid)
    listener = Listener(grid, await worker.handle(QUOTES))
    number = await asker.ask()
    await fragile.go_away()
    await fragile.come_back(restarted=True)
    await eventually(lambda: ExchangesLost(PARTITION) in listener.items, message="the loss is told")
    handled = await worker.handle(QUOTES)
    (held,) = handled.held
    grid.exchanges.follow(PARTITION, handled.position)
    await worker.take(held)
    await worker.answer(held, "1")
    await eventually(lambda: listener.over(asker) == [number], message="its end is told")
    await listener.close()


async def test_what_is_over_is_over_however_much_is_over_with_it(harness: Harness) -> None:
    """Found: what one step could not look after any more was answered, taken and told to be waiting."""
    grid = await harness.grid()
    asker, handler = User(grid), User(grid)
    await handler.handle(QUOTES, concurrency=CROWD)
    steps = [asker.question(number, timeout=harness.roomy) for number in range(1, CROWD + 1)]
    numbers = [each.request for each in steps]
    for start in range(0, CROWD, 50):
        assert set((await asker.put(*steps[start : start + 50])).results) == {PUT}
    held = list((await handler.handle(QUOTES, concurrency=CROWD)).held)
    taken = await handler.take(*held[:-1])
    assert len(taken) == CROWD - 1
    await harness.advance(harness.roomy)

    assert await handler.answer(held[-2]) == AnswerResult(accepted=False, duplicate=False)
    assert await handler.take(held[-1]) == []
    (last,), (first,) = await asker.look(numbers[-1]), await asker.look(numbers[0])
    assert (first.state, last.state) == (AnswerState.TIMED_OUT_TAKEN, AnswerState.TIMED_OUT)
    await grid.exchanges.fire(PARTITION)
    states = {each.state for each in await asker.look(*numbers)}
    assert states == {AnswerState.TIMED_OUT_TAKEN, AnswerState.TIMED_OUT}
    assert (await handler.handle(QUOTES, concurrency=CROWD)).held == ()
