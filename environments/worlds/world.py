"""One world, from its streams of random numbers to an episode and its truth."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from environments.records import Episode
from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.questions.candidates import ask_questions
from environments.worlds.story.author import draw_story
from environments.worlds.story.beats import draw_cast
from environments.worlds.story.dialogue import DialogueRenderer
from environments.worlds.truth import Truth
from memagent.core.records import Session, Turn

World = tuple[Episode, Truth]
"""An episode and what is behind it."""
_DEFAULTS: dict[str, Any] = dict(Turn(id="-", speaker="-", text=""))
"""Every field of a turn: looking up defaults a turn at a time would take most of the time
of making an episode.
"""
_NOON = time(12, tzinfo=UTC)


def make_world(episode_id: str, key: str, lexicon: Lexicon, config: WorldConfig) -> World:
    """Return an episode and its truth.

    Equal keys, lexicons and configurations give equal worlds, byte for byte.
    """

    def draw(stream: str) -> random.Random:
        return random.Random(f"{key}/{stream}")

    cast = draw_cast(draw("people"), lexicon, config)
    story = draw_story(draw("story"), lexicon, config, cast)
    dialogue = DialogueRenderer(draw, lexicon, config, cast, story).dialogue()
    subjects = {telling.subject for telling in dialogue.tellings if telling.true}
    speakers = tuple(person.name for person in cast.speakers)
    truth = Truth(
        episode_id=episode_id,
        speakers=speakers,
        people=(*speakers, *(tie.friend.name for tie in cast.ties if tie.friend.name in subjects)),
        bystanders=tuple(person.name for person in cast.bystanders),
        dates=story.dates,
        session_ids=tuple(f"S{number}" for number in range(1, config.sessions + 1)),
        tellings=dialogue.tellings,
    )
    sessions = tuple(
        _session(*row) for row in zip(truth.session_ids, truth.dates, dialogue.turns, strict=True)
    )
    questions = ask_questions(
        draw("questions"), truth, lexicon, most=config.max_questions, prefix=f"{episode_id}:q"
    )
    return _with_questions(episode_id, sessions, truth, questions)


def asked_after(
    episode: Episode, truth: Truth, key: str, lexicon: Lexicon, most: int | None
) -> World:
    """Return the sessions of `truth` with questions about the state right after them.

    `truth` holds the first sessions of the episode; `most` None asks three a session.
    """
    sessions = len(truth.session_ids)
    questions = ask_questions(
        random.Random(f"{key}/questions/{sessions}"),
        truth,
        lexicon,
        most=3 * sessions if most is None else most,
        prefix=f"{episode.id}:s{sessions}:q",
    )
    return _with_questions(episode.id, episode.sessions[:sessions], truth, questions)


def _with_questions(
    episode_id: str,
    sessions: tuple[Session, ...],
    truth: Truth,
    questions: Iterable[tuple[Any, Any]],
) -> World:
    questions = tuple(questions)
    episode = Episode.model_construct(
        id=episode_id, sessions=sessions, probes=tuple(probe for probe, _ in questions)
    )
    return episode, replace(truth, probes=tuple(origin for _, origin in questions))


def _session(session_id: str, day: date, turns: Iterable[tuple[str, str, str]]) -> Session:
    return Session.model_construct(
        id=session_id,
        at=datetime.combine(day, _NOON),
        turns=tuple(_turn(*turn) for turn in turns),
    )


def _turn(turn_id: str, speaker: str, text: str) -> Turn:
    fields: dict[str, Any] = {**_DEFAULTS, "id": turn_id, "speaker": speaker, "text": text}
    return Turn.model_construct(**fields)
