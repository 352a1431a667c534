"""The keyword arm: the tokeniser, and BM25 equal to a reference implementation however
the documents are spread over segments.
"""

from __future__ import annotations

import random

import pytest
from bank_kit import WORDS
from hypothesis import given, settings, strategies as st

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem
from memagent.search.index import IndexView, Scoring
from memagent.search.segments import Arena, make_doc
from memagent.state.effects import K1, B, query_terms, tokenize


def view_of(texts: list[str], *, batches: int = 1, replaced: int = 0) -> IndexView:
    """An index of the texts, put in several batches, the first `replaced` of them written twice."""
    arena = Arena(4)
    items = [
        MemoryItem(id=f"m{i:04d}", text=text, speaker=("Ana", "Bo")[i % 2])
        for i, text in enumerate(texts)
    ]
    view = IndexView(arena)
    old = [
        item.model_copy(update={"text": "an older text about the boat"})
        for item in items[:replaced]
    ]
    view = view.put(
        [make_doc(item, (item.text, ""), (tokenize(item.text), ()), arena) for item in old]
    )
    size = max(1, len(items) // batches)
    for start in range(0, len(items), size):
        part = items[start : start + size]
        view = view.put(
            [make_doc(item, (item.text, ""), (tokenize(item.text), ()), arena) for item in part]
        )
    return view


def scores(
    view: IndexView, text: str, k: int = 1_000, where: Filter | None = None
) -> dict[str, float]:
    scoring = Scoring(view, words=query_terms(text))
    found = scoring.listed(scoring.words(k=k, where=where))
    return {item.id: score for item, score in found}


def random_texts(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(1, 9))) for _ in range(count)]


def test_scores_equal_the_reference_library() -> None:
    bm25s = pytest.importorskip("bm25s", reason="a development dependency")
    texts = random_texts(200, seed=3)
    reference = bm25s.BM25(method="lucene", k1=K1, b=B)
    reference.index([tokenize(text) for text in texts], show_progress=False)
    view = view_of(texts, batches=7, replaced=20)
    for query in ("boat", "Lisbon winter", "dog chess piano garden", "tea tea flight"):
        want = reference.get_scores(query_terms(query))
        got = scores(view, query)
        assert {f"m{i:04d}" for i, score in enumerate(want) if score > 0} == got.keys()
        for i, score in enumerate(want):
            assert got.get(f"m{i:04d}", 0.0) == pytest.approx(
                float(score) * (K1 + 1.0), rel=1e-4, abs=1e-6
            )


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 120), st.integers(1, 20), st.integers(0, 40))
def test_scores_do_not_depend_on_segments(count: int, batches: int, replaced: int) -> None:
    texts = random_texts(count, seed=count)
    once, often = view_of(texts), view_of(texts, batches=batches, replaced=min(replaced, count))
    assert len(once) == len(often) == count
    for query in ("boat tea", "winter"):
        assert list(scores(once, query).items()) == list(scores(often, query).items())
        assert scores(once, query, k=5).keys() == set(list(scores(once, query))[:5])


def test_a_filter_keeps_scores_and_drops_others() -> None:
    view = view_of(random_texts(100, seed=1), batches=5)
    everyone, ana = (
        scores(view, "boat"),
        scores(view, "boat", where=Filter(speakers=frozenset({"Ana"}))),
    )
    assert ana == {key: score for key, score in everyone.items() if int(key[1:]) % 2 == 0}


def test_dropped_documents_are_not_counted() -> None:
    texts = random_texts(90, seed=8)
    view = view_of(texts, batches=3).drop([f"m{i:04d}" for i in range(45, 90)])
    assert scores(view, "boat dog") == scores(view_of(texts[:45]), "boat dog")
    assert len(view) == 45


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Ana's dogs were running", ["ana", "dog", "run"]),
        ("", []),
        ("!!! ... ---", []),
        ("ＡＢＣ １２", ["abc", "12"]),
        ("東京に行った", ["東京", "京に", "に行", "行っ", "った"]),
        ("猫", ["猫"]),
        ("Straße STRASSE", ["strass", "strass"]),
        ("naïve café", ["naïve", "café"]),
        ("don’t", ["dont"]),
        ("привет мир", ["привет", "мир"]),
    ],
)
def test_tokens(text: str, terms: list[str]) -> None:
    assert tokenize(text) == terms


def test_stop_words_count_only_when_there_is_nothing_else() -> None:
    assert query_terms("who are you") == ["who", "are", "you"]
    assert query_terms("who is Ana") == ["ana"]


@given(st.text(max_size=300))
def test_any_text_can_be_tokenised(text: str) -> None:
    assert all(term and term == term.strip() for term in tokenize(text))
