"""Every number equals what a hand computes, and says None where nothing is divided by."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given, strategies as st

from environments.evaluation.rankings import BM25, fused
from environments.rewards import metrics
from environments.rewards.metrics import f1, f1_memory_r2
from memagent.core.records import ItemStatus, MemoryItem

WORDS = st.lists(st.sampled_from(["blue", "red", "cat", "dog", "Lisbon", "2023"]), max_size=8).map(
    " ".join
)


def item(name: str, text: str, *turns: str, deleted: bool = False) -> MemoryItem:
    status = ItemStatus.DELETED if deleted else ItemStatus.ACTIVE
    return MemoryItem(id=f"mem_{name}", text=text, source_turn_ids=turns, status=status)


def test_words_are_compared_without_case_punctuation_and_articles() -> None:
    assert metrics.normalised("The cat, a Dog & an   apple-tree!") == ["cat", "dog", "appletree"]


def test_f1_counts_repeated_words_and_the_other_spelling_does_not() -> None:
    said, gold = "red red blue", "red red dog cat"
    assert f1(said, gold) == pytest.approx(2 * 2 / (3 + 4))  # red twice: P 2/3, R 2/4
    assert f1_memory_r2(said, gold) == pytest.approx(2 * 1 / (3 + 4))  # red once: P 1/3, R 1/4


def test_an_empty_answer_scores_nothing_unless_the_gold_is_empty_too() -> None:
    for measure in (f1, f1_memory_r2, metrics.bleu1, metrics.exact_match):
        assert measure("", "red") == 0.0
        assert measure("red", "") == 0.0
        assert measure("the", "") == 1.0


@given(WORDS, WORDS)
def test_f1_lies_between_the_set_spelling_and_one(said: str, gold: str) -> None:
    assert 0.0 <= f1_memory_r2(said, gold) <= f1(said, gold) <= 1.0
    assert f1(said, gold) == f1(gold, said)
    assert f1(said, said) == 1.0


def test_bleu1_clips_repeats_and_punishes_short_answers() -> None:
    assert metrics.bleu1("red red red", "red dog") == pytest.approx(1 / 3)
    assert metrics.bleu1("red", "red dog cat") == pytest.approx(exp(1 - 3 / 1))
    assert metrics.bleu1("red dog", "dog red") == 1.0


def test_exact_match_is_about_order_too() -> None:
    assert metrics.exact_match("The Red dog.", "red dog") == 1.0
    assert metrics.exact_match("dog red", "red dog") == 0.0


def test_recall_counts_turns_and_needs_gold() -> None:
    returned = ["D1:1", "D2:2", "D3:3", "D4:4"]
    assert metrics.recall_at_k(returned, ["D2:2", "D4:4"], k=3) == 0.5
    assert metrics.recall_at_k(returned, ["D2:2", "D4:4"], k=4) == 1.0
    assert metrics.recall_at_k([], ["D2:2"], k=5) == 0.0
    with pytest.raises(ValueError, match="gold turn"):
        metrics.recall_at_k(returned, [], k=3)


def test_citation_precision_counts_each_cited_turn_once() -> None:
    parts = [
        metrics.citation_part(["D1:1", "D1:1", "D2:2"], ["D1:1"]),
        metrics.citation_part([], ["D1:1"]),
    ]
    assert parts == [(1.0, 2.0), (0.0, 0.0)]
    assert metrics.ratio(parts) == 0.5


def test_m_fail_is_about_citations_and_its_content_check_about_words() -> None:
    gold = {
        "D1:1": "I adopted a grey kitten named Pixel",
        "D1:2": "We moved to Porto in May",
        "D1:3": "I bake bread",
    }
    citing = metrics.items_by_turn(
        [
            item("1", "Ana adopted a kitten named Pixel.", "D1:1"),
            item("2", "Ana said something.", "D1:2"),
            item("3", "I bake bread", "D1:3", deleted=True),
        ]
    )
    assert metrics.m_fail(gold, citing) == ["D1:3"]
    assert metrics.m_fail_content(gold, citing) == ["D1:2", "D1:3"]


def test_covering_goes_by_distinct_content_words() -> None:
    assert metrics.covers(
        "kitten Pixel", "a kitten named Pixel, my kitten", share=0.66
    )  # 2 of kitten, named, pixel
    assert not metrics.covers("kitten", "a kitten named Pixel", share=0.5)
    assert metrics.covers("who are you", "you are", share=1.0), (
        "light words count when there are no others"
    )
    assert metrics.covers("", "?!", share=1.0), "a turn without words has nothing to cover"


def test_abstention_has_precision_and_recall() -> None:
    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    told = [
        {"abstained": abstained, "unanswerable": unanswerable} for abstained, unanswerable in pairs
    ]
    assert metrics.ratio(metrics.abstention_precision_part(**one) for one in told) == pytest.approx(
        1 / 3
    )
    assert metrics.ratio(metrics.abstention_recall_part(**one) for one in told) == pytest.approx(
        1 / 2
    )


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    assert metrics.ratio([(1, 1), (0, 3)]) == 0.25
    assert metrics.ratio([(0, 0)]) is None


def test_intervals_resample_whole_conversations() -> None:
    low, high = metrics.ratio_interval([[(1, 1)] * 50, [(0, 1)] * 50]) or (None, None)
    assert (low, high) == (0.0, 1.0), (
        "with two conversations a resample often holds one of them twice"
    )
    assert metrics.ratio_interval([[(1, 1), (0, 1)], [(0, 0)]]) is None, (
        "one conversation tells no spread"
    )
    groups = [[(value, 1.0)] for value in (0.2, 0.4, 0.6, 0.8)]
    assert metrics.ratio_interval(groups, seed=3) == metrics.ratio_interval(groups, seed=3)


def test_tokens_are_words_and_signs() -> None:
    assert metrics.token_count("It's 5 o'clock!") == 8  # It ' s 5 o ' clock !


def test_bm25_is_the_written_formula() -> None:
    scores = BM25(["red dog", "red cat cat", "bird"]).scores("cats")
    idf = 0.9808292  # ln(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert scores.tolist() == pytest.approx([0.0, idf * 2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2)), 0.0])


def test_fusion_adds_reciprocal_ranks() -> None:
    assert fused([["a", "b", "c"], ["b", "a"], ["b"]]) == ["b", "a", "c"]
    assert fused([["x"], ["a"]]) == ["a", "x"], "ties by id"
