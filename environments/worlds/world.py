"""One world, from its streams of random numbers to an episode and its truth."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import Any

from environments.records import Episode
from environments.worlds.asker import ask_questions
from environments.worlds.cast import draw_cast
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Lexicon
from environments.worlds.teller import Teller
from environments.worlds.timeline import tell_story
from environments.worlds.truth import Truth
from memagent.core.records import Session, Turn

_BLANK: dict[str, Any] = dict(Turn(id="-", speaker="-", text=""))
"""Every field of a turn: looking up defaults a turn at a time would take most of the time
of making an episode.
"""
_NOON = time(12, tzinfo=UTC)


def make_world(name: str, key: str, lexicon: Lexicon, knobs: Knobs) -> tuple[Episode, Truth]:
    """The episode called `name` and its truth.

    Equal keys, lexicons and knobs give equal worlds, byte for byte.
    """

    def draw(stream: str) -> random.Random:
        return random.Random(f"{key}/{stream}")

    cast = draw_cast(draw("people"), lexicon, knobs)
    story = tell_story(draw("story"), lexicon, knobs, cast)
    dialogue = Teller(draw, lexicon, knobs, cast, story).dialogue()
    told = {telling.subject for telling in dialogue.tellings if telling.true}
    speakers = tuple(one.name for one in cast.speakers)
    truth = Truth(
        episode_id=name,
        speakers=speakers,
        people=(*speakers, *(tie.friend.name for tie in cast.ties if tie.friend.name in told)),
        bystanders=tuple(one.name for one in cast.bystanders),
        dates=story.dates,
        session_ids=tuple(f"S{number}" for number in range(1, knobs.sessions + 1)),
        tellings=dialogue.tellings,
    )
    asked = ask_questions(draw("questions"), truth, lexicon, most=knobs.asked, prefix=f"{name}:q")
    sessions = tuple(
        Session.model_construct(
            id=session_id,
            at=datetime.combine(day, _NOON),
            turns=tuple(_turn(turn, who, text) for turn, who, text in turns),
        )
        for session_id, day, turns in zip(
            truth.session_ids, truth.dates, dialogue.turns, strict=True
        )
    )
    episode = Episode.model_construct(
        id=name, sessions=sessions, probes=tuple(probe for probe, _ in asked)
    )
    return episode, replace(truth, probes=tuple(how for _, how in asked))


def _turn(turn_id: str, speaker: str, text: str) -> Turn:
    fields: dict[str, Any] = {**_BLANK, "id": turn_id, "speaker": speaker, "text": text}
    return Turn.model_construct(**fields)


def asked_after(
    episode: Episode, truth: Truth, key: str, lexicon: Lexicon, sessions: int, most: int | None
) -> tuple[Episode, Truth]:
    """The first sessions with questions about the state right after them."""
    told = truth.upto(sessions)
    most = 3 * sessions if most is None else most
    rng = random.Random(f"{key}/questions/{sessions}")
    asked = ask_questions(rng, told, lexicon, most=most, prefix=f"{episode.id}:s{sessions}:q")
    cut = Episode.model_construct(
        id=episode.id,
        sessions=episode.sessions[:sessions],
        probes=tuple(probe for probe, _ in asked),
    )
    return cut, replace(told, probes=tuple(how for _, how in asked))
