"""Sequence order recall: which of two excerpts of the talk came first.

After SORT (Pink et al. 2024): the excerpts are turns, quoted word for word, and the
order asked for is that of the talk, not that of what the turns tell about. Each excerpt
stands first in half of the questions. A memory that keeps facts but not when it heard
them guesses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Unpack

from environments.records import Episode, Probe
from environments.tasks.generated import (
    Asked,
    Draw,
    Generated,
    Shared,
    require_at_least,
    with_questions,
)
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import half
from environments.worlds.truth import Act, ProbeTruth, Telling, Truth
from environments.worlds.world import World, make_world

_QUESTIONS: Final = (
    'Which of these was said first, "{one}" or "{other}"?',
    'Two lines of the talk: "{one}" and "{other}". Which of them came first?',
    'Which line is the earlier one, "{one}" or "{other}"?',
    'Here are two excerpts, "{one}" and "{other}". Which one came before the other?',
)


class Sort(Generated):
    """At most `probes` pairs of excerpts from `sessions` sessions."""

    name = "sort"

    def __init__(self, *, sessions: int = 8, probes: int = 12, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` for numbers below 1."""
        super().__init__(**shared)
        require_at_least(1, sessions=sessions, probes=probes)
        self.sessions, self.probes = sessions, probes

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        base = self.world.config
        config = replace(base, sessions=self.sessions, facts=2 * base.facts, probes=1)
        world = make_world(name, str(draw("key").random()), lexicon, config)
        rng = draw("questions")
        texts = [text for _, text in half(_QUESTIONS, held_out=lexicon.held_out)]
        told = _excerpts(*world)
        rng.shuffle(told)
        pairs = list(zip(told[::2], told[1::2], strict=False))[: self.probes]
        return with_questions(
            world, [_question(rng, texts, pair, place % 2) for place, pair in enumerate(pairs)]
        )


def _excerpts(episode: Episode, truth: Truth) -> list[tuple[Telling, str]]:
    """Return the tellings of new values that were never corrected, each with its turn.

    Turns with the same words are left out.
    """
    kept = {held.tellings[0]: held.value for values in truth.state(-1).values() for held in values}
    words = {turn.id: turn.text for turn in episode.turns}
    often = Counter(words.values())
    claims = Counter((telling.key, telling.value) for telling in truth.tellings)
    return [
        (telling, words[telling.turn_id])
        for telling in truth.tellings
        if telling.act is Act.ADD
        and kept.get(telling.id) == telling.value
        and often[words[telling.turn_id]] == 1
        and claims[telling.key, telling.value] == 1
    ]


def _question(
    rng: random.Random,
    texts: Sequence[str],
    pair: Sequence[tuple[Telling, str]],
    reverse: int,
) -> Asked:
    """Ask for the earlier of two; `reverse` puts it second."""
    earlier, later = sorted(pair, key=lambda told: int(told[0].id.removeprefix("T")))
    named = (later, earlier) if reverse else (earlier, later)
    probe = Probe(
        id="q",
        question=rng.choice(texts).format(one=named[0][1], other=named[1][1]),
        answers=(earlier[1],),
        evidence_turn_ids=(earlier[0].turn_id, later[0].turn_id),
        category="excerpt",
    )
    how = ProbeTruth(
        probe_id="q",
        ask="excerpt",
        subject=named[0][0].subject,
        relation=named[0][0].relation,
        value=named[0][1],
        other=named[1][1],
        moments=tuple((*telling.key, telling.value) for telling, _ in named),
    )
    return probe, how
