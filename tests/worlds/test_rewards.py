"""Every reward equals what a hand computes, in every branch, and None means masked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import log

import pytest

from environments.errors import EnvironmentFault
from environments.records import Episode, ProbeScore
from environments.rewards.grounding import (
    EvidenceTerm,
    TemporalTerm,
    event_fidelity,
    evidence_value,
    proximity,
    session_grounding,
    session_proximity,
    temporal_value,
    time_consistency,
)
from environments.rewards.metrics import f1, f1_memory_r2
from environments.rewards.terms import (
    AnswerTerm,
    CompressionTerm,
    OpEntropyTerm,
    OpTargetTerm,
    Outcome,
    RejectedTerm,
    UnreadableTerm,
    Weighted,
    compression_cost,
    memory_r2_reward,
    op_rates,
    outcome_of,
)
from memagent.core.ops import (
    Add,
    Delete,
    MemoryOp,
    Noop,
    ParseStatus,
    Rejected,
    RejectReason,
    Update,
)
from memagent.core.records import Fact, MemoryItem, Session, TimeSpan, Turn
from memagent.core.snapshot import AppliedOp, ChunkReport, IngestReport, MemorySnapshot

NOON = datetime(2024, 5, 10, 12, tzinfo=UTC)

# said, gold, F1, F1 as Memory-R2 spells it. Words: lower case, without signs and
# articles; F1 = 2 common / (words + words).
PAIRS = [
    ("Lisbon", "Lisbon", "1", "1"),
    ("Lisbon", "Porto", "0", "0"),
    ("", "", "1", "1"),
    ("", "Lisbon", "0", "0"),
    ("Lisbon", "", "0", "0"),
    ("the", "a", "1", "1"),  # articles only: both empty
    ("The cat", "cat", "1", "1"),
    ("LISBON!", "lisbon", "1", "1"),
    ("in Lisbon", "Lisbon", "2/3", "2/3"),  # 2*1 / (2+1)
    ("Lisbon", "in Lisbon", "2/3", "2/3"),
    ("a grey cat", "grey cat", "1", "1"),
    ("grey cat", "black cat", "1/2", "1/2"),  # 2*1 / (2+2)
    ("red red blue", "red red dog cat", "4/7", "2/7"),  # red twice / once over 3+4
    ("red red", "red", "2/3", "2/3"),  # counted once in both: 2*1 / (2+1)
    ("red", "red red", "2/3", "2/3"),
    ("red red", "red red", "1", "1/2"),  # 2*2 / 4, 2*1 / 4
    ("red red red", "red red red", "1", "1/3"),
    ("no no no", "no", "1/2", "1/2"),  # 2*1 / (3+1)
    ("yes and yes", "yes and no", "2/3", "2/3"),  # yes, and: 2*2 / 6
    ("tea and tea and tea", "tea and tea", "3/4", "1/2"),  # tea tea and: 2*3 / 8; tea, and: 2*2 / 8
    ("7 May 2023", "7 May 2023", "1", "1"),
    ("May 7, 2023", "7 May 2023", "1", "1"),  # order does not count
    ("May 2023", "7 May 2023", "4/5", "4/5"),
    (
        "on the 7th of May",
        "7 May 2023",
        "2/7",
        "2/7",
    ),  # on 7th of may: 4 words, may in common, 2*1 / (4+3)
    ("it's Ana's dog", "its anas dog", "1", "1"),  # signs go
    ("apple-tree", "apple tree", "0", "0"),  # the hyphen goes, the words grow together
    ("a b c d", "b c", "4/5", "4/5"),  # a goes: b c d, b c
    ("dog cat bird fish", "bird", "2/5", "2/5"),
    ("new new york york", "new york", "2/3", "2/3"),  # 2*2 / (4+2)
    (
        "she said she would",
        "she said that she would",
        "8/9",
        "2/3",
    ),  # 4 words, 5 words: 4 and 3 in common
]


@pytest.mark.parametrize(("said", "gold", "counted", "distinct"), PAIRS)
def test_both_spellings_of_f1_on_pairs_made_by_hand(
    said: str, gold: str, counted: str, distinct: str
) -> None:
    assert f1(said, gold) == pytest.approx(float(Fraction(counted)), abs=1e-12)
    assert f1_memory_r2(said, gold) == pytest.approx(float(Fraction(distinct)), abs=1e-12)


def answered(name: str = "p", **fields: object) -> ProbeScore:
    return ProbeScore.model_validate({"probe_id": name, **fields})


# -- sums ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "reward"), [(500, 0.60), (700, 0.60), (900, 0.54), (1400, 0.39)]
)
def test_the_reward_of_memory_r2(memory: int, reward: float) -> None:
    outcome = Outcome(scores=(answered(f1=0.6),), memory_tokens=memory, dialogue_tokens=1000)
    earned = memory_r2_reward()(outcome)
    assert earned.total == pytest.approx(reward)
    assert earned.parts["answers"] == 0.6
    assert earned.parts["compression"] == pytest.approx((0.6 - reward) / 0.3)


def test_a_term_that_does_not_apply_masks_the_sum_unless_its_weight_is_zero() -> None:
    nothing = Outcome(memory_tokens=900, dialogue_tokens=1000)
    masked = Weighted((AnswerTerm(), 1.0), (CompressionTerm(), -0.3))(nothing)
    assert masked.total is None
    assert masked.parts == {"answers": None, "compression": pytest.approx(0.2)}
    shown = Weighted((AnswerTerm(), 0.0), (CompressionTerm(), -0.3))(nothing)
    assert shown.total == pytest.approx(-0.06)


def test_terms_need_names_of_their_own() -> None:
    with pytest.raises(EnvironmentFault, match="names of their own"):
        Weighted((AnswerTerm(), 1.0), (AnswerTerm(measure="exact"), 1.0))
    both = Weighted((AnswerTerm(), 1.0), (AnswerTerm(measure="exact", name="exact"), 0.5))
    assert both(Outcome(scores=(answered(f1=0.5, exact=1.0),))).total == 1.0
    with pytest.raises(EnvironmentFault, match="names of their own"):
        Weighted()


def test_answers_count_abstentions_rightly_and_leave_failures_out() -> None:
    scores = (
        answered("1", f1=0.5),
        answered("2", unanswerable=True, abstained=True),
        answered("3", unanswerable=True, answer="x"),
        answered("4", failure="down"),
    )
    assert AnswerTerm()(Outcome(scores=scores)) == 0.5  # (0.5 + 1 + 0) / 3
    assert AnswerTerm()(Outcome(scores=scores[3:])) is None


def test_no_dialogue_costs_no_compression() -> None:
    assert compression_cost(memory_tokens=5, dialogue_tokens=0) == 0.0
    assert compression_cost(memory_tokens=10, dialogue_tokens=10, free_share=0.5) == 0.5


def test_sizes_count_active_items_and_sessions_heard() -> None:
    sessions = tuple(
        Session(id=f"s{n}", turns=(Turn(id=f"t{n}", speaker="Ana", text="one two three."),))
        for n in (1, 2)
    )
    memory = MemorySnapshot(
        digest="d",
        items={
            "a": MemoryItem(id="a", text="two words"),
            "b": MemoryItem.model_validate({"id": "b", "text": "gone", "status": "deleted"}),
        },
        sessions={"s1": sessions[0]},
    )
    outcome = outcome_of(Episode(id="e", sessions=sessions), memory)
    assert (outcome.memory_tokens, outcome.dialogue_tokens) == (2, 4)


# -- form and op mix -------------------------------------------------------------------


def report(*ops: MemoryOp, parse: tuple[ParseStatus, ...] = (), rejected: int = 0) -> IngestReport:
    chunk = ChunkReport(
        chunk_id="s#0",
        session_id="s",
        index=0,
        applied=tuple(AppliedOp(op_id=f"o{n}", op=op) for n, op in enumerate(ops)),
        parse=parse,
        rejected=tuple(Rejected(reason=RejectReason.UNKNOWN_ID) for _ in range(rejected)),
    )
    return IngestReport(session_id="s", stored_turns=1, chunks=(chunk,))


ADD, UPDATE, DELETE, NOOP = (
    Add(fact=Fact(text="x")),
    Update(id="m", text="y"),
    Delete(id="m"),
    Noop(),
)


def test_bad_form_is_counted_over_calls_and_over_proposals() -> None:
    statuses = (ParseStatus.STRICT, ParseStatus.FAILED, ParseStatus.PARTIAL, ParseStatus.EMPTY)
    outcome = Outcome(
        reports=(report(ADD, NOOP, UPDATE, parse=statuses, rejected=1), report(parse=statuses[:1]))
    )
    assert UnreadableTerm()(outcome) == 0.4  # 2 of 5 calls
    assert RejectedTerm()(outcome) == 0.25  # 1 of 4 proposals
    assert UnreadableTerm()(Outcome()) == RejectedTerm()(Outcome()) == 0.0
    form = Weighted((UnreadableTerm(), -0.1), (RejectedTerm(), -0.1))(outcome)
    assert form.total == pytest.approx(-0.065)


def test_bad_form_costs_a_little_and_the_op_mix_is_only_reported() -> None:
    bad = report(ADD, ADD, ADD, parse=(ParseStatus.FAILED, ParseStatus.STRICT), rejected=1)
    earned = memory_r2_reward()(Outcome(scores=(answered(f1=0.6),), reports=(bad,)))
    assert earned.total == pytest.approx(0.6 - 0.05 * 0.5 - 0.05 * 0.25)
    assert earned.parts["op_entropy"] == 0.0
    assert (
        memory_r2_reward(form=0.0)(Outcome(scores=(answered(f1=0.6),), reports=(bad,))).total == 0.6
    )


def test_the_op_mix() -> None:
    mixed = [report(ADD, ADD), report(UPDATE, NOOP)]
    assert op_rates(mixed) == {"ADD": 0.5, "UPDATE": 0.25, "DELETE": 0.0, "NOOP": 0.25}
    entropy = (0.5 * log(2) + 2 * 0.25 * log(4)) / log(4)
    assert (
        OpEntropyTerm()(Outcome(reports=tuple(mixed)))
        == pytest.approx(entropy)
        == pytest.approx(0.75)
    )
    assert OpEntropyTerm()(Outcome(reports=(report(ADD, ADD),))) == 0.0
    assert OpEntropyTerm()(Outcome(reports=(report(ADD, UPDATE, DELETE, NOOP),))) == pytest.approx(
        1.0
    )
    wanted = OpTargetTerm({"ADD": 0.25, "UPDATE": 0.25, "DELETE": 0.25, "NOOP": 0.25})
    assert wanted(Outcome(reports=tuple(mixed))) == pytest.approx(
        0.75
    )  # 1 - (0.25 + 0 + 0.25 + 0) / 2
    assert wanted(Outcome()) is None
    assert OpTargetTerm({"ADD": 1.0})(Outcome(reports=(report(NOOP),))) == 0.0
    for wrong in ({"ADD": 0.5}, {"KEEP": 1.0}, {"ADD": 2.0, "NOOP": -1.0}, {}):
        with pytest.raises(EnvironmentFault, match="add up to 1"):
            OpTargetTerm(wrong)


# -- evidence --------------------------------------------------------------------------


def test_a_right_guess_earns_less_than_a_grounded_answer() -> None:
    grounded, guessed, wrong = (
        answered("1", f1=0.8),
        answered("2", f1=0.8, uncovered=1),
        answered("3", f1=0.2),
    )
    for score, value in ((grounded, 1.0), (guessed, 0.0), (wrong, -1.0)):
        assert EvidenceTerm()(Outcome(scores=(score,))) == value
    assert (
        EvidenceTerm()(Outcome(scores=(grounded, guessed, wrong, answered("4", failure="down"))))
        == 0.0
    )
    assert (
        EvidenceTerm(measure="exact", right_at=1.0)(Outcome(scores=(answered(exact=0.0),))) == -1.0
    )
    assert EvidenceTerm()(Outcome()) is None
    assert evidence_value(right=False, grounded=True) == -1.0


# -- time ------------------------------------------------------------------------------


def span(first: int | None, last: int | None) -> TimeSpan:
    """From day `first` to day `last` after noon of 10 May."""
    start, end = (
        (NOON + timedelta(days=day) if day is not None else None) for day in (first, last)
    )
    return TimeSpan(start=start, end=end)


@pytest.mark.parametrize(("days", "value"), [(1, 0.231), (10, 0.066), (20, -0.097), (60, -0.429)])
def test_proximity_falls_with_distance(days: float, value: float) -> None:
    assert proximity(distance_days=days, range_days=10) == pytest.approx(value, abs=5e-4)
    for at in (NOON + timedelta(days=10 + days), NOON - timedelta(days=days)):
        assert session_proximity(at, span(0, 10)) == pytest.approx(value, abs=5e-4)


def test_proximity_at_its_ends() -> None:
    assert proximity(distance_days=0, range_days=10) == 1.0
    assert session_proximity(NOON + timedelta(days=5), span(0, 10)) == 1.0
    assert proximity(distance_days=1e9, range_days=1) == -0.5
    assert proximity(distance_days=2, range_days=0.1) == proximity(
        distance_days=2, range_days=1
    )  # at least a day
    assert session_proximity(NOON + timedelta(days=10), span(0, 10)) == pytest.approx(
        0.25
    )  # spans are half open
    assert session_proximity(NOON - timedelta(days=9), span(0, None)) == pytest.approx(0.25)
    assert session_proximity(NOON, TimeSpan()) == 1.0


def test_sessions_are_grounded_exactly_partly_or_not_at_all() -> None:
    assert session_grounding({"a", "b"}, {"b", "a"}) == 1.0
    assert session_grounding({"a"}, {"a", "b"}) == session_grounding({"a", "b", "c"}, {"a"}) == 0.5
    assert session_grounding({"c"}, {"a"}) == session_grounding(set(), {"a"}) == -1.0


def test_events_lie_inside_across_or_apart() -> None:
    asked = span(0, 10)
    assert event_fidelity([span(2, 3)], asked) == event_fidelity([span(0, 10)], asked) == 1.0
    assert event_fidelity([span(-1, 3)], asked) == event_fidelity([span(8, 12)], asked) == 0.5
    assert event_fidelity([span(None, 3)], asked) == event_fidelity([span(-5, 20)], asked) == 0.5
    assert event_fidelity([span(10, 12)], asked) == -1.0
    assert event_fidelity([span(2, 3), span(8, 12), span(20, 21)], asked) == pytest.approx(0.5 / 3)
    assert event_fidelity([], asked) == 0.0
    assert event_fidelity([span(-9, 9)], TimeSpan()) == 1.0


def test_time_is_the_mean_over_chosen_sessions() -> None:
    inside, apart = (
        (NOON + timedelta(days=1), [span(1, 2)]),
        (NOON + timedelta(days=20), [span(20, 21)]),
    )
    assert time_consistency([inside], span(0, 10)) == 1.0
    expected = (1.0 + (proximity(distance_days=10, range_days=10) - 1.0) / 2) / 2
    assert time_consistency([inside, apart], span(0, 10)) == pytest.approx(expected)
    assert time_consistency([], span(0, 10)) == -0.75


def test_the_reward_of_memory_t1() -> None:
    assert temporal_value(accuracy=1.0, grounding=1.0, time=1.0) == 1.0
    assert temporal_value(accuracy=0.5, grounding=-1.0, time=0.25) == pytest.approx(0.15)
    assert temporal_value(accuracy=1.0, grounding=1.0, time=1.0, readable=False) == -1.0


def test_the_temporal_term_reads_sessions_from_citations_and_events_from_memory() -> None:
    sessions = tuple(
        Session(
            id=f"s{n}",
            at=NOON + timedelta(days=20 * n),
            turns=(Turn(id=f"t{n}", speaker="Ana", text="x"),),
        )
        for n in (0, 1)
    )
    memory = MemorySnapshot(
        digest="d",
        items={"m": MemoryItem(id="m", text="x", source_turn_ids=("t0",), valid=span(8, 12))},
    )
    term = TemporalTerm(Episode(id="e", sessions=sessions), {"p": span(0, 10), "q": span(0, 10)})

    def value(**fields: object) -> float | None:
        return term(
            Outcome(scores=(answered(**{"f1": 1.0, "evidence": ("t0",), **fields}),), memory=memory)
        )

    # s0 lies in the range (1), its event across a bound (0.5): time 0.75
    assert value(cited=("t0",)) == pytest.approx(0.6 + 0.2 + 0.2 * 0.75)
    # s1 too: 10 days off, no events there: (0.75 + 0.0663 / 2) / 2
    near = proximity(distance_days=10, range_days=10)
    assert value(cited=("t0", "t1")) == pytest.approx(0.6 + 0.2 * 0.5 + 0.2 * (0.75 + near / 2) / 2)
    assert value(cited=()) == pytest.approx(0.6 - 0.2 - 0.2 * 0.75)
    # sessions that the answer names count, whatever it cites
    assert value(cited=("t1",), evidence_sessions=("s0",)) == value(cited=("t0",))
    assert value(cited=(), evidence_sessions=("s0", "s1")) == value(cited=("t0", "t1"))
    assert value(unreadable=True, abstained=True, f1=0.0) == -1.0
    assert value(failure="down") is None
    assert value(name="other") is None
