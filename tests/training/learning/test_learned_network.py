"""The training of the design `learned`: labels, parity with numpy, repeatability, no leakage."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.loading import LEVELS, grammar_of
from environments.worlds.language.spec import FORMS
from memagent.designs.parts.learned.labels import ACTS, KINDS, ROLES, SUBJECTS
from memagent.designs.parts.learned.network import open_network, read_clause, read_tokens, softmax
from memagent.designs.parts.learned.reading import Reader
from train.learned.__main__ import fit_weights
from train.learned.batches import collate, turn_row
from train.learned.dialogues import (
    HELD_OUT,
    LabelledEpisode,
    english_grammar,
    labelled_episodes,
)
from train.learned.forms import FOLDER, generic_forms, german_grammar, plain
from train.learned.network import Encoder, load_encoder, save_weights
from train.learned.pairs import choice_accuracy, fit_pairs, pair_cases
from train.learned.words import held_out_words, invented, value_like

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def episodes() -> list[LabelledEpisode]:
    return list(labelled_episodes(6, seed=3))


def test_labels_name_known_classes_and_lie_in_their_turns(episodes: list[LabelledEpisode]) -> None:
    clauses = [(turn, clause) for episode in episodes for turn in episode.turns
               for clause in turn.clauses]  # fmt: skip
    assert len(clauses) > 100
    for turn, clause in clauses:
        assert 0 <= clause.start < clause.end <= len(turn.text)
        assert clause.act in ACTS
        assert clause.kind in KINDS
        assert clause.subject in SUBJECTS
        assert set(clause.spans) <= set(ROLES[1:])
        for start, end in clause.spans.values():
            assert clause.start <= start < end <= clause.end, (turn.text, clause)
    assert any(len(turn.clauses) > 1 for episode in episodes for turn in episode.turns)


def test_dialogues_of_a_seed_are_the_same_again_and_of_another_are_not() -> None:
    first, again = (list(labelled_episodes(2, seed=8)) for _ in range(2))
    assert [episode.turns for episode in first] == [episode.turns for episode in again]
    assert first[0].turns != next(iter(labelled_episodes(1, seed=9))).turns


def test_torch_and_numpy_read_alike(episodes: list[LabelledEpisode], tmp_path: Path) -> None:
    torch.manual_seed(1)
    save_weights(tmp_path / "w.npz", Encoder(), None)
    encoder, weights = load_encoder(tmp_path / "w.npz"), open_network(tmp_path / "w.npz")
    rows = [turn_row(turn) for turn in episodes[0].turns[:24]]
    batch = collate(rows, {})
    with torch.no_grad():
        hidden = encoder(batch.tokens)
        roles = encoder.roles(hidden).softmax(dim=2).numpy()
        inner = encoder.pooled(hidden, batch.rows, batch.inside, batch.starts)
        acts = encoder.act(inner).softmax(dim=1).numpy()
    outputs = read_tokens(weights, [row.rows for row in rows])
    number = 0
    for place, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        length = len(row.rows.words)
        np.testing.assert_allclose(output.hidden, hidden[place, :length].numpy(), atol=1e-3)
        np.testing.assert_allclose(output.roles, roles[place, :length], atol=1e-3)
        for first, after, _ in row.clauses:
            clause = read_clause(weights, output.hidden[first:after])
            np.testing.assert_allclose(clause.act, acts[number], atol=1e-3)
            number += 1
    assert number == len(acts) > 0
    assert softmax(np.zeros(4, dtype=np.float32)).tolist() == [0.25] * 4


def test_the_command_fits_encoder_and_pairs_and_gives_the_same_file_again(tmp_path: Path) -> None:
    said: list[str] = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit_weights(tmp_path / f"{name}.npz", steps=2, pairs=1, seed=seed, say=said.append)
    first, again, other = ((tmp_path / f"{name}.npz").read_bytes() for name in "abc")
    assert first == again
    assert first != other
    weights = open_network(tmp_path / "a.npz").weights
    assert {"pair.0.weight", "bounds.weight"} <= weights.keys()
    assert len(list(tmp_path.iterdir())) == 3


def test_the_pair_scorer_learns_which_memory_a_statement_replaces() -> None:
    reader, rng = Reader(open_network()), random.Random(0)
    cases = [case for episode in labelled_episodes(14, seed=21)
             for case in pair_cases(reader, episode, rng)]  # fmt: skip
    assert len({case.act for case in cases if case.answer}) > 3
    train, test = cases[: 3 * len(cases) // 4], cases[3 * len(cases) // 4 :]
    before, after = (choice_accuracy(fit_pairs(train, epochs=n), test) for n in (0, 50))
    assert after["new"] > 0.8
    assert after["change"] > before["change"] + 0.2, (before, after)


def test_no_name_value_or_form_of_a_test_split_is_trained_on(
    episodes: list[LabelledEpisode],
) -> None:
    banned, rng = held_out_words(), random.Random(2)
    assert {"wambui", "ghent"} <= banned or len(banned) > 500
    drawn = {invented(rng) for _ in range(2_000)}
    drawn |= {word.lower() for _ in range(2_000) for word in value_like(rng, "word Word").split()}
    assert drawn.isdisjoint(banned)
    grammars = [german_grammar(), english_grammar(random.Random(4), held_out=False)]
    lexicons = [(grammar.relations, Lexicon(grammar, held_out=False)) for grammar in grammars]
    own = {plain(form.text) for relations, lexicon in lexicons for relation in relations
           for group in FORMS[relation.kind]
           for form in lexicon.forms(relation.name, group)}  # fmt: skip
    own |= {plain(form) for form in generic_forms()["any"]["retract"]}
    assert len(own) > 1_500
    for level in LEVELS:
        for relation in grammar_of(level).relations:
            for group in FORMS[relation.kind]:
                test_forms = {plain(form) for form in getattr(relation, group)[1::2]}
                assert own.isdisjoint(test_forms), own & test_forms
    spoken = {clause.relation for episode in episodes for turn in episode.turns
              for clause in turn.clauses}  # fmt: skip
    assert spoken.isdisjoint(HELD_OUT)
    assert {path.name for path in FOLDER.iterdir()} == {"english.toml", "german.toml", "open.toml"}
