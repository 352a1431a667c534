"""Conformance of a `Journal`: what every implementation must do, checked on fresh, empty ones.

`check_journal` raises `AssertionError` naming the broken law. It writes about a hundred
and twenty rows, ten megabytes in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from memagent.core.errors import VersionConflict
from memagent.core.ops import Add, Delete, Noop, Rejected, RejectReason, Update
from memagent.core.records import (
    Event,
    EventEdge,
    Fact,
    ItemStats,
    ItemStatus,
    MemoryItem,
    NodeKind,
    Relation,
    Scope,
    Session,
    SourceRef,
    TimeSpan,
    Trust,
    Turn,
)
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Entry,
    Erased,
    GraphDelta,
    ItemChange,
    JournalRow,
    Redacted,
    Restored,
    SessionStored,
    StatsDelta,
)
from memagent.core.trials import (
    Credit,
    ItemUse,
    Outcome,
    Trial,
    TrialEnded,
    TrialStarted,
    TrialStep,
)
from memagent.protocols import Journal

_NOON: Final = datetime(2023, 5, 8, 12, 0, 0, 123_456, tzinfo=UTC)
_WRITERS: Final = 50
_LONG_ROWS: Final = 40


_TURN: Final = Turn(
    id="t1",
    speaker="Zoë",
    text='We\'re moving to Oslo 🇳🇴 "soon"\n\t\u2028',
    at=_NOON,
    image_caption="a\\b",
    trust=Trust.TOOL,
)
_SESSION: Final = Session(id="ses_1", at=_NOON, turns=(_TURN, Turn(id="t2", speaker="B", text="")))
_SPAN: Final = TimeSpan(start=_NOON, end=_NOON + timedelta(microseconds=1), text="just now")
_FACT: Final = Fact(
    text="Zoë moves to Oslo", subject="Zoë", source_turn_ids=("t1",), valid=_SPAN, said_at=_NOON
)
_ITEM: Final = MemoryItem(
    id="mem_1",
    text="Zoë moves to Oslo",
    source_turn_ids=("t1",),
    valid=_SPAN,
    tags=("home",),
    metadata={"whole": 1, "real": 1.0, "tiny": 5e-324, "yes": True, "none": None, "words": "1"},
)
_CHANGES: Final = (
    ItemChange(
        id="mem_1",
        after=_ITEM.model_copy(
            update={"version": 2, "status": ItemStatus.DELETED, "op_id": "op_2"}
        ),
        archive=(_ITEM,),
    ),
    ItemChange(id="mem_2", after=None),
)
_TRIAL: Final = Trial(
    id="trl_1",
    task="open the door",
    shown=(ItemUse(id="mem_1"),),
    steps=(TrialStep(action="push", observation="it is locked", reward=-0.1, used=("mem_1",)),),
    outcome=Outcome(reward=1e-9, success=False, detail="the key was missing"),
    credit=(Credit(id="mem_1", version=2, reward=0.1),),
    at=_NOON,
)
_GRAPH: Final = GraphDelta(
    nodes=(
        Event(
            id="evt_1",
            kind=NodeKind.EVENT,
            summary="the move",
            people=("Zoë",),
            valid=_SPAN,
            aliases=("move",),
        ),
    ),
    edges=(
        EventEdge(
            source="evt_1",
            target="mem_1",
            relation=Relation.RELATED,
            label="a:b",
            confidence=0.1,
            count=3,
        ),
    ),
    removed_nodes=("evt_0",),
    removed_edges=(("evt_0", "mem_1", "causes"),),
    session_id="ses_1",
    rejected=("evt_9: unknown",),
)
_OPS: Final = (
    Add(fact=_FACT, id="mem_1", tags=("home",), metadata={"n": 2}),
    Update(id="mem_1", text="moved", valid=_SPAN),
    Delete(id="mem_1", version=2, reason="over"),
)


def every_kind() -> list[Entry]:
    """Return one entry of each kind, fields filled, except `Erased`."""
    applied = [
        AppliedOp(op_id=f"op_{number}", op=op, item_id="mem_1", version=number)
        for number, op in enumerate(_OPS, 1)
    ]
    return [
        SessionStored(session=_SESSION),
        Commit(
            id="com_1",
            ops=(*applied, AppliedOp(op_id="op_4", op=Noop(fact=_FACT))),
            rejected=(Rejected(reason=RejectReason.NOT_SHOWN, op=Delete(id="mem_9"), raw="{"),),
            changes=_CHANGES,
            graph=_GRAPH,
            ordinals=(("t1", 2), ("t2", 0)),
            source=SourceRef(
                session_id="ses_1", chunk_index=0, turn_ids=("t1",), response_ids=("r1",)
            ),
            undoes="com_0",
            stats=(("mem_1", ItemStats(counters={"harmful": 2.0})), ("mem_2", None)),
            trials=((_TRIAL.id, _TRIAL.model_copy(update={"taught": True})),),
        ),
        _GRAPH,
        StatsDelta(
            updates=(("mem_1", ItemStats(q_value=-0.1, uses=2, last_reward=1e-9)), ("mem_2", None))
        ),
        TrialStarted(trial=_TRIAL.model_copy(update={"outcome": None, "credit": ()})),
        TrialEnded(trial=_TRIAL, stats=(("mem_1", ItemStats(uses=1, counters={"helpful": 1.0})),)),
        Restored(
            digest="0" * 64,
            changes=_CHANGES,
            graph=_GRAPH,
            ordinals=(("t1", 1),),
            stats=(("mem_1", None),),
            done=(("ses_1", (0, 2)),),
            sessions=(_SESSION,),
        ),
    ]


async def read_all(journal: Journal, scope: Scope, *, after: int = 0) -> list[JournalRow]:
    """Every row of the scope after a sequence."""
    return [row async for row in journal.since(scope, after)]


async def check_journal(make: Callable[[], Journal]) -> None:
    """Hold the journals that `make` gives to the laws of `Journal`.

    Each call of `make` must give an empty one; the caller closes them.
    """
    await _keeps_every_kind(make())
    await _refuses_stale_writers(make())
    await _appends_batches_whole(make())
    await _keeps_scopes_apart(make())
    await _has_one_winner_a_sequence(make())
    await _reads_long_logs_in_order(make())
    await _forgets_what_was_erased(make())
    await _rewrites_what_was_redacted(make())


async def _keeps_every_kind(journal: Journal) -> None:
    scope = Scope(user_id="kinds")
    assert await journal.head(scope) == 0, "an empty scope has head 0"
    assert await read_all(journal, scope) == [], "an empty scope has no rows"
    assert await journal.scopes() == [], "a scope without rows is not listed"
    written: list[JournalRow] = []
    for number, entry in enumerate(every_kind()):
        row = await journal.append(scope, entry, expect=number)
        assert row.seq == number + 1, "sequences run from 1 without gaps"
        assert row.entry == entry, "an append answers with the entry it was given"
        assert await journal.head(scope) == row.seq, (
            "the head is seen as soon as an append has returned"
        )
        written.append(row)
    read = await read_all(journal, scope)
    for row, again in zip(written, read, strict=True):
        assert again == row, f"a {row.entry.kind!r} row reads back as it was written"
        assert again.model_dump_json() == row.model_dump_json(), (
            f"a {row.entry.kind!r} row reads back with the same types"
        )
    times = [row.recorded_at for row in read]
    assert times == sorted(times), "time never runs backwards within a log"
    for after in range(len(written) + 2):
        assert await read_all(journal, scope, after=after) == written[after:], (
            "since(n) begins after n"
        )


async def _refuses_stale_writers(journal: Journal) -> None:
    scope, entry = Scope(user_id="stale"), StatsDelta()
    for expect in (1, 7, -1):
        await _conflicts(journal, scope, expect=expect, actual=0)
    assert await journal.scopes() == [], "a refused append leaves nothing behind"
    await journal.append(scope, entry, expect=0)
    await journal.append(scope, entry, expect=1)
    for expect in (0, 1, 3):
        await _conflicts(journal, scope, expect=expect, actual=2)
    assert [row.seq for row in await read_all(journal, scope)] == [1, 2], (
        "a refused append writes nothing"
    )


async def _conflicts(journal: Journal, scope: Scope, *, expect: int, actual: int) -> None:
    named: tuple[int, int] | None = None
    try:
        await journal.append(scope, StatsDelta(), expect=expect)
    except VersionConflict as error:
        named = (error.expected, error.actual)
    assert named is not None, (
        f"an append with expect={expect} on head {actual} must raise VersionConflict"
    )
    assert named == (expect, actual), "a conflict names both sequences"


async def _appends_batches_whole(journal: Journal) -> None:
    scope, entries = Scope(user_id="batch"), every_kind()
    dates = [_NOON + timedelta(days=number) for number in range(len(entries))]
    rows = await journal.append_many(scope, entries, expect=0, recorded_at=dates)
    assert [row.seq for row in rows] == list(range(1, len(entries) + 1)), (
        "a batch has running sequences"
    )
    assert [row.recorded_at for row in rows] == dates, "a batch keeps the dates it came with"
    assert await read_all(journal, scope) == rows, "a batch reads back as it was written"
    try:
        await journal.append_many(scope, entries, expect=1)
    except VersionConflict:
        pass
    else:
        raise AssertionError("a batch on a stale head must raise VersionConflict")
    assert await journal.head(scope) == len(entries), "a refused batch writes none of its entries"
    more = await journal.append_many(
        scope,
        entries[:2],
        expect=len(entries),
        recorded_at=[dates[0], dates[-1] + timedelta(days=1)],
    )
    assert [row.recorded_at for row in more] == [dates[-1], dates[-1] + timedelta(days=1)], (
        "time never runs backwards within a log"
    )
    assert await journal.append_many(scope, [], expect=await journal.head(scope)) == [], (
        "an empty batch writes nothing"
    )


async def _keeps_scopes_apart(journal: Journal) -> None:
    scopes = [
        Scope(user_id="ann"),
        Scope(user_id="Ann"),
        Scope(user_id="ann "),
        Scope(user_id="an"),
        Scope(user_id="ann%"),
        Scope(user_id="ann", agent_id="b"),
        Scope(user_id="ann", run_id="b"),
        Scope(user_id="ann", agent_id="b", run_id="b"),
        Scope(user_id="a", agent_id="nn"),
        Scope(user_id="a\u0308nn"),
        Scope(user_id="änn"),
        Scope(user_id="../ann'; DROP TABLE journal; --"),
    ]
    for scope in scopes:
        assert await journal.head(scope) == 0, f"{scope!r} sees another scope's rows"
        await journal.append(scope, Redacted(reason=repr(scope)), expect=0)
    for scope in scopes:
        (row,) = await read_all(journal, scope)
        assert row.entry == Redacted(reason=repr(scope)), f"{scope!r} reads another scope's rows"
    listed = await journal.scopes()
    assert sorted(map(repr, listed)) == sorted(map(repr, scopes)), (
        "every scope with rows is listed once"
    )
    assert [scope.key for scope in listed] == sorted(scope.key for scope in listed), (
        "scopes are listed in order of key"
    )


async def _has_one_winner_a_sequence(journal: Journal) -> None:
    scope = Scope(user_id="race")

    async def try_to_append(number: int, expect: int) -> bool:
        try:
            await journal.append(scope, Redacted(reason=str(number)), expect=expect)
        except VersionConflict:
            return False
        return True

    for expect in range(3):
        won = await asyncio.gather(*(try_to_append(number, expect) for number in range(_WRITERS)))
        assert sum(won) == 1, (
            f"{sum(won)} of {_WRITERS} writers got sequence {expect + 1}; exactly one must"
        )
    assert await journal.head(scope) == 3

    async def append_alone(number: int) -> None:
        own = Scope(user_id="race", run_id=str(number))
        await journal.append(own, StatsDelta(), expect=0)
        assert await journal.head(own) == 1, "an acknowledged append is visible at once"

    await asyncio.gather(*(append_alone(number) for number in range(_WRITERS)))
    assert len(await journal.scopes()) == _WRITERS + 1, "no append of different scopes gets lost"


async def _reads_long_logs_in_order(journal: Journal) -> None:
    scope, text = Scope(user_id="long"), "x" * 200_000
    for number in range(_LONG_ROWS):
        await journal.append(scope, _turns(number, text), expect=number)
    seen: list[int] = []
    async for row in journal.since(scope, 2):
        seen.append(row.seq)
        assert row.entry == _turns(row.seq - 1, text), "rows of a long log keep their entries"
    assert seen == list(range(3, _LONG_ROWS + 1)), "a long log is read in order without gaps"
    async for row in journal.since(scope, 0):
        if row.seq == 3:
            break  # a reader may leave in the middle
    await journal.append(scope, StatsDelta(), expect=_LONG_ROWS)


def _turns(number: int, text: str) -> SessionStored:
    return SessionStored(
        session=Session(id=f"ses_{number}", turns=(Turn(id=f"t{number}", speaker="A", text=text),))
    )


async def _forgets_what_was_erased(journal: Journal) -> None:
    scope, other = Scope(user_id="gone"), Scope(user_id="stays")
    for number, entry in enumerate(every_kind()):
        await journal.append(scope, entry, expect=number)
        await journal.append(other, entry, expect=number)
    count = len(every_kind())
    erased = await journal.append(scope, Erased(reason="asked for"), expect=count)
    assert scope not in await journal.scopes(), "an erased scope is not listed"
    after = await journal.append(scope, StatsDelta(), expect=count + 1)
    assert scope in await journal.scopes(), "a scope is listed again once it holds something"
    assert await journal.head(scope) == count + 2, "sequences go on after an erasure"
    for seq in (0, count - 1, count):
        assert await read_all(journal, scope, after=seq) == [erased, after], (
            "erased rows are left out"
        )
    assert await read_all(journal, scope, after=count + 1) == [after]
    assert [row.entry for row in await read_all(journal, other)] == every_kind(), (
        "erasing one scope leaves the others alone"
    )


async def _rewrites_what_was_redacted(journal: Journal) -> None:
    scope = Scope(user_id="redacted")
    await journal.append_many(scope, [_turns(number, "secret") for number in range(3)], expect=0)
    new = {1: Redacted(), 3: _turns(2, "[erased]")}
    row = await journal.redact(scope, new, expect=3, reason="asked for")
    assert row.seq == await journal.head(scope) == 4
    assert isinstance(row.entry, Redacted) and [seq for seq, _ in row.entry.rewritten] == [1, 3]
    entries = [row.entry for row in await read_all(journal, scope)]
    assert entries == [Redacted(), _turns(1, "secret"), _turns(2, "[erased]"), row.entry], (
        "rewritten entries are read instead of the first ones"
    )
    again = await journal.redact(scope, {3: Redacted()}, expect=4)
    assert (await read_all(journal, scope, after=2))[0].entry == Redacted(), "the last one counts"
    with suppress(VersionConflict):
        await journal.redact(scope, {2: Redacted()}, expect=4)
        raise AssertionError("a redaction that built on an older head was written")
    assert (await read_all(journal, scope, after=1))[0].entry == _turns(1, "secret")
    assert again.seq == await journal.head(scope) == 5
