"""Synthetic worlds: the same bytes from the same seed, splits that share no form and no
name, knobs that do what they say.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
from places import KITS_PATH

from environments import Environment, EnvironmentFault, check_environment, truncate
from environments.datasets.synthetic import LEVELS, PARTS, Level, Part, Synthetic, synthetic
from environments.records import Episode
from environments.worlds.language.checks import check_grammar
from environments.worlds.language.days import day_text, spoken
from environments.worlds.language.lexicon import Lexicon, capitalised, tiny_vocabulary, with_article
from environments.worlds.language.loading import grammar_of, open_world
from environments.worlds.language.spec import FORMS, Relation
from environments.worlds.questions.candidates import CATEGORIES
from environments.worlds.truth import Act
from environments.worlds.world import make_world
from memagent.plugins import available, load

TINY = grammar_of("tiny")
TOKEN = re.compile(r"\w+|[^\w\s]")


def texts(episode: Episode) -> list[str]:
    said = [text for turn in episode.turns for text in (turn.speaker, turn.text)]
    return said + [text for probe in episode.probes for text in (probe.question, *probe.answers)]


def words(episode: Episode) -> set[str]:
    return {word for text in texts(episode) for word in TOKEN.findall(text.lower())}


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_keeps_the_promises_of_an_environment(level: Level) -> None:
    check_environment(synthetic(level, sessions=2, turns=8, episodes=1), episodes=1, sessions=2)


def test_the_environment_is_found_by_name() -> None:
    assert "synthetic" in available("environments")
    made = cast(Callable[..., object], load("environments", "synthetic"))("tiny", sessions=2)
    assert isinstance(made, Environment) and isinstance(made, Synthetic)


def test_the_grammars_have_no_fault() -> None:
    check_grammar(grammar_of("rich"))
    check_grammar(grammar_of("standard"))
    check_grammar(TINY, least=2)
    assert len(grammar_of("rich").relations) >= 60 and len(TINY.relations) == 8
    for relation in TINY.relations:
        for group, rule in FORMS[relation.kind].items():
            forms = getattr(relation, group)
            assert len(forms) >= (2 if rule.least < 8 else 4) or not rule.required


def test_faults_of_a_grammar_are_all_listed_at_once() -> None:
    wrong = replace(
        TINY.relations[0],
        first=("I live in {town}.", "I live in {town}."),
        values="planets",
        role="mayor",
    )
    with pytest.raises(ValueError) as caught:
        check_grammar(replace(TINY, relations=(wrong,), jokes=("{value}!",)), least=2)
    message = str(caught.value)
    assert "must hold ['value']" in message and "stands in first too" in message
    assert (
        "no pool 'planets'" in message
        and "a bond has a role" in message
        and "cannot be filled" in message
    )


def digest(level: Level) -> str:
    env = synthetic(level, sessions=4, seed=3)
    made = (env.episode(split, index).model_dump_json() for split in PARTS for index in range(2))
    return hashlib.sha256("".join(made).encode()).hexdigest()


def test_episodes_are_the_same_bytes_in_another_process() -> None:
    code = "import test_worlds as t; print(t.digest('tiny'), t.digest('rich'))"
    env = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": os.pathsep.join([KITS_PATH, str(Path(__file__).parent)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.split() == [digest("tiny"), digest("rich")]


def test_episodes_are_made_by_index_and_differ() -> None:
    env = synthetic("tiny", sessions=3, episodes=2)
    assert [one.id for one in env.episodes("test")] == [
        "synthetic-tiny-0-test-0",
        "synthetic-tiny-0-test-1",
    ]
    assert len(list(env.episodes())) == 6
    assert env.episode("train", 10**6) == env.episode("train", 10**6)
    assert env.episode("train", 0).sessions != env.episode("train", 1).sessions
    assert env.episode("train", 0).sessions != env.episode("validation", 0).sessions
    assert (
        env.episode("train", 0).sessions
        != synthetic("tiny", sessions=3, seed=1).episode("train", 0).sessions
    )


@pytest.mark.parametrize("level", LEVELS)
def test_the_test_split_shares_no_form_and_no_name_with_the_others(level: Level) -> None:
    env = synthetic(level, sessions=6)
    forms: dict[Part, set[str]] = {split: set() for split in PARTS}
    names: dict[Part, set[str]] = {split: set() for split in PARTS}
    for split in PARTS:
        for index in range(6):
            truth = env.truth(env.episode(split, index))
            forms[split] |= {telling.form for telling in truth.tellings} | {
                probe.form for probe in truth.probes
            }
            names[split] |= {*truth.people, *truth.bystanders}
    assert not forms["test"] & (forms["train"] | forms["validation"])
    assert not names["test"] & (names["train"] | names["validation"])
    train, test = (Lexicon(grammar_of(level), held_out=held_out) for held_out in (False, True))
    for pool in grammar_of(level).named_pools:
        assert not set(train.pools[pool]) & set(test.pools[pool])
    texts_of_train = {form.text for forms in train.all_forms.values() for form in forms}
    assert not texts_of_train & {form.text for forms in test.all_forms.values() for form in forms}


def test_tiny_has_a_small_closed_vocabulary() -> None:
    vocabulary = set(tiny_vocabulary())
    assert len(vocabulary) <= 300
    seen: set[str] = set()
    cases: tuple[tuple[int, Part], ...] = ((8, "train"), (8, "test"), (32, "validation"))
    for sessions, split in cases:
        env = synthetic("tiny", sessions=sessions)
        for index in range(100 if sessions == 8 else 10):
            seen |= words(env.episode(split, index))
    assert seen <= vocabulary
    assert len(seen) > 200


def test_the_held_out_forms_of_tiny_use_known_words_only() -> None:
    def of(held_out: bool) -> set[str]:
        lexicon = Lexicon(TINY, held_out=held_out)
        forms = [
            form.text
            for key, some in lexicon.all_forms.items()
            if key[1] in _written(key)
            for form in some
        ]
        values = [value for pool in lexicon.pools.values() for value in pool]
        pairs = [word for relation in TINY.relations for pair in relation.pairs for word in pair]
        names = [person.name for person in lexicon.people]
        return {
            word
            for text in (*forms, *values, *pairs, *names)
            for word in TOKEN.findall(text.lower())
        }

    assert of(True) <= of(False)


def _written(key: tuple[str, str]) -> tuple[str, ...]:
    """Groups that are written without chat: no greetings, prompts, replies."""
    spoken_only = ("openings", "hellos", "closings", "fillers", "reminders", "denials", "prompts")
    return () if key[1] in spoken_only or key[1].startswith("replies") else (key[1],)


def test_every_kind_of_question_is_asked_evenly() -> None:
    for level in LEVELS:
        env = synthetic(level)
        counts = dict.fromkeys(CATEGORIES, 0)
        for index in range(15):
            for probe in env.episode("train", index).probes:
                counts[probe.category] += 1  # type: ignore[index]
        assert min(counts.values()) > 0.03 * sum(counts.values()), counts


def test_knobs_move_what_they_say() -> None:
    def tellings(**knobs: float) -> list[Act]:
        env = synthetic("rich", sessions=8, **knobs)  # type: ignore[arg-type]
        return [
            telling.act
            for index in range(4)
            for telling in env.truth(env.episode("train", index)).tellings
        ]

    def share(acts: list[Act], *wanted: Act) -> float:
        return sum(act in wanted for act in acts) / len(acts)

    revising = (Act.CHANGE, Act.CORRECT, Act.REMOVE, Act.CANCEL, Act.MOVE, Act.DONE)
    assert (
        share(tellings(overwrite=0.8), *revising)
        > share(tellings(overwrite=0.05, interference=0.0), *revising) + 0.2
    )
    noise = (Act.BYSTANDER, Act.JOKE, Act.RUMOUR)
    assert (
        share(tellings(distractors=0.0), *noise) == 0.0 < share(tellings(distractors=1.0), *noise)
    )
    assert (
        share(tellings(interference=0.0, distractors=0.0), Act.REPEAT)
        == 0.0
        < share(tellings(interference=1.0), Act.REPEAT)
    )
    assert len(tellings(facts=8)) > 1.5 * len(tellings(facts=3))
    long = synthetic("rich", sessions=40, turns=40, speakers=4, probes=9).episode("train", 0)
    assert len(long.sessions) == 40 and min(len(session.turns) for session in long.sessions) >= 40
    assert len({turn.speaker for turn in long.turns}) == 4 and len(long.probes) == 9


def test_only_the_named_relations_are_told_and_asked_for() -> None:
    env = synthetic("tiny", sessions=6, only=("lives_in", "likes"))
    truths = [env.truth(env.episode("train", index)) for index in range(4)]
    assert {telling.relation for truth in truths for telling in truth.tellings} == {
        "lives_in",
        "likes",
    }
    with pytest.raises(
        EnvironmentFault, match=r"'tiny' has no relation 'rules'; there are .*lives_in"
    ):
        synthetic("tiny", only=("lives_in", "rules"))


def test_friends_are_as_many_as_the_knob_says_at_most() -> None:
    def bonds(friends: int) -> set[str]:
        env = synthetic("tiny", sessions=8, friends=friends)
        kinds = {relation.name: relation.kind for relation in TINY.relations}
        told = [
            one for index in range(6) for one in env.truth(env.episode("train", index)).tellings
        ]
        return {one.subject for one in told if kinds[one.relation] == "bond"}

    assert bonds(0) == set() != bonds(1)


def test_wrong_knobs_are_refused() -> None:
    with pytest.raises(EnvironmentFault, match="tiny, standard, rich"):
        synthetic("huge")  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match="sessions must be at least 1"):
        synthetic("tiny", sessions=0)
    with pytest.raises(EnvironmentFault, match="share from 0 to 1"):
        synthetic("tiny", overwrite=1.5)
    with pytest.raises(EnvironmentFault, match=r"need .* names"):
        synthetic("tiny", speakers=30).episode("train", 0)
    with pytest.raises(EnvironmentFault, match="no split 'dev'"):
        synthetic("tiny").episode("dev", 0)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match="is no episode of"):
        synthetic("tiny").world_of("synthetic-tiny-1-train-0")


@pytest.mark.parametrize("level", ["standard", "rich"])
def test_dialogues_read_like_sentences(level: Level) -> None:
    env = synthetic(level, sessions=8)
    for split in PARTS:
        for index in range(4):
            for text in texts(env.episode(split, index)):
                assert "{" not in text and "  " not in text and text == text.strip()
            for turn in env.episode(split, index).turns:
                assert turn.text[0].isupper() or not turn.text[0].isalpha(), turn.text
                assert turn.text[-1] in ".!?…", turn.text
                assert not re.search(r"\b[Aa] (?=[aeio]\w)(?!one\b|once|eu)", turn.text), turn.text
                assert not re.search(r"\b[Aa]n (?=[bcdfgjklmnpqrstvwxyz])", turn.text), turn.text


def test_days_are_named_as_one_names_them() -> None:
    import random

    monday = date(2024, 5, 20)
    phrases = {
        spoken(random.Random(seed), "long", monday, date(2024, 5, day))
        for seed in range(40)
        for day in (17, 19, 20, 6, 24)
    }
    assert {
        "last Friday",
        "three days ago",
        "yesterday",
        "today",
        "two weeks ago",
        "this coming Friday",
    } <= phrases
    assert day_text("long", monday) == "20 May 2024" and day_text("short", monday) == "20 May"


def test_articles_and_capitals_follow_the_sound_and_the_sentence() -> None:
    assert [with_article(noun) for noun in ("nurse", "engineer", "hour", "unicycle", "umbrella", "SUV", "MRI")] == [
        "a nurse", "an engineer", "an hour", "a unicycle", "an umbrella", "an SUV", "an MRI",
    ]  # fmt: skip
    assert capitalised("well... so it was. is it? yes") == "Well... so it was. Is it? Yes"


# -- metamorphic laws ------------------------------------------------------------------


def structure(level: Level, index: int, grammar_people: bool) -> list[tuple[object, ...]]:
    grammar = grammar_of(level)
    if grammar_people:
        grammar = replace(
            grammar, people=tuple(replace(one, name=f"Q{one.name}") for one in grammar.people)
        )
    lexicon = Lexicon(grammar, held_out=False)
    episode, truth = make_world(
        "one", f"law/{index}", lexicon, replace(open_world(level).config, sessions=6)
    )
    plain = [
        [text.replace("Q", "") for text in (probe.question, *probe.answers)]
        for probe in episode.probes
    ]
    return [
        (probe.category, how.ask, probe.evidence_turn_ids, tuple(text))
        for probe, how, text in zip(episode.probes, truth.probes, plain, strict=True)
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_other_names_ask_the_same_questions(level: Level) -> None:
    for index in range(3):
        assert structure(level, index, grammar_people=False) == structure(
            level, index, grammar_people=True
        )


@pytest.mark.parametrize("level", LEVELS)
def test_more_distractors_change_no_answer(level: Level) -> None:
    quiet, loud = synthetic(level, distractors=0.0), synthetic(level, distractors=2.0)
    for index in range(3):
        few, many = quiet.episode("train", index), loud.episode("train", index)
        assert len(many.turns) >= len(few.turns)
        for one, other in zip(few.probes, many.probes, strict=True):
            assert (one.question, one.answers, one.category) == (
                other.question,
                other.answers,
                other.category,
            )
            said = {turn.id: turn.text for episode in (few,) for turn in episode.turns}
            heard = {turn.id: turn.text for turn in many.turns}
            bare = [re.sub(r"\W|^[^,]*,", "", said[turn]).lower() for turn in one.evidence_turn_ids]
            assert len(bare) == len(other.evidence_turn_ids) <= len(heard)


def test_a_truncated_episode_has_the_truth_of_its_sessions() -> None:
    env = synthetic("standard", sessions=8)
    episode = env.episode("train", 0)
    cut = truncate(episode, 3)
    truth = env.truth(cut)
    assert len(truth.sessions) == 3 and truth.tellings == tuple(
        telling for telling in env.truth(episode).tellings if telling.session < 3
    )
    assert truth.state(-1) == env.truth(episode).state(2)
    asked, behind = env.after(episode, 3)
    assert asked.sessions == cut.sessions and asked.probes
    assert [probe.id for probe in asked.probes] == [probe.probe_id for probe in behind.probes]
    assert {probe.id for probe in asked.probes}.isdisjoint(probe.id for probe in episode.probes)
    with pytest.raises(EnvironmentFault, match="has 1 to 8 sessions"):
        env.after(episode, 9)


def test_speakers_are_told_apart_from_bystanders() -> None:
    env = synthetic("rich", sessions=8, distractors=1.0)
    for episode in islice(env.episodes("train"), 5):
        truth = env.truth(episode)
        about = {how.subject for how in truth.probes}
        assert about <= set(truth.people) and not about & set(truth.bystanders)
        assert {turn.speaker for turn in episode.turns} == set(truth.speakers)


def test_relations_are_frozen_data() -> None:
    assert isinstance(TINY.relations[0], Relation)
    with pytest.raises(AttributeError):
        TINY.relations[0].name = "other"  # type: ignore[misc]
