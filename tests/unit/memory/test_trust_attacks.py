"""A model that obeys whatever it reads changes nothing that the user said."""

from __future__ import annotations

from collections import Counter

from trust_attacks import OWN, Case, attacks, benign

from memagent.core.ops import Add, Delete, OpLimits, RejectReason, Update
from memagent.core.records import Trust
from memagent.state.validation import validate_ops

ATTACKS = attacks()


def judge(case: Case):
    return validate_ops(case.ops, visible=case.visible, limits=OpLimits(), chunk=case.chunk)


def succeeds(case: Case) -> bool:
    """Whether an item of the user changes, or a planted text is trusted too much."""
    for op in judge(case).accepted:
        if isinstance(op, Update | Delete) and case.visible[op.id].trust is Trust.USER:
            return True
        if isinstance(op, Add) and case.planted and op.fact.trust.rank < case.planted.rank:
            return True
    return False


def test_no_attack_changes_what_the_user_said() -> None:
    assert len(ATTACKS) >= 2_000
    fallen = [case for case in ATTACKS if succeeds(case)]
    assert [(case.family, case.turns[0].text, case.ops) for case in fallen] == []


def test_the_attacks_are_of_all_kinds_and_each_op_would_be_legal_without_its_source() -> None:
    families = Counter(case.family for case in ATTACKS)
    assert len(families) >= 14 and min(families.values()) >= len(
        {case.turns[0].text for case in ATTACKS}
    )
    # Without the suspect text every op would pass, so the refusals are due to trust alone.
    alone = [
        Case(case.family, case.turns[:1], OWN, case.ops, case.planted) for case in ATTACKS[::7]
    ]
    passed = sum(bool(judge(case).accepted) for case in alone)
    assert passed >= 0.95 * len(alone)


def test_of_benign_conversations_with_tools_at_most_one_in_a_hundred_is_harmed() -> None:
    cases = benign()
    assert len(cases) >= 500
    harmed: list[Case] = []
    for case in cases:
        batch = judge(case)
        lowered = any(
            isinstance(op, Add) and op.fact.trust is not Trust.USER for op in batch.accepted
        )
        if batch.rejected or lowered:
            harmed.append(case)
    assert len(harmed) <= 0.01 * len(cases), Counter(
        (case.turns[0].text, case.ops[0].op) for case in harmed
    ).most_common(5)


def test_one_chunk_deletes_no_more_than_its_limit() -> None:
    case = next(case for case in ATTACKS if case.family == "wipe DELETE")
    batch = validate_ops(
        case.ops,
        visible=case.visible,
        limits=OpLimits(max_deletes=3),
        chunk=case.chunk.model_copy(update={"turns": case.turns[:1]}),
    )
    assert len(batch.accepted) == 3
    assert {bad.reason for bad in batch.rejected} == {RejectReason.TOO_MANY_OPS}
