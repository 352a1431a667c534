"""The story of an episode, drawn before a word is written.

A story says which true things are told in which session, by whom, in which form, and
what each does to what was told before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Relation
from environments.worlds.story.additions import Additions
from environments.worlds.story.beats import Story, session_dates
from environments.worlds.story.cast import Cast
from environments.worlds.story.draft import Draft
from environments.worlds.story.revisions import Revisions


def draw_story(rng: random.Random, lexicon: Lexicon, config: WorldConfig, cast: Cast) -> Story:
    """Draw the story of an episode, session by session."""
    draft = Draft(rng, lexicon, config, cast)
    writer = draft.writer
    ties = list(cast.ties)
    rng.shuffle(ties)
    dates = session_dates(rng, lexicon, config)
    relations = tuple(_draw_relations(rng, lexicon, config))
    additions = Additions(draft, ties, relations)
    revisions = Revisions(draft, list(cast.spares))
    story = Story(dates=dates, used=writer.used, relations=relations)
    for number, today in enumerate(dates):
        writer.begin(number, today)
        late = number / max(1, config.sessions - 1)
        pressure = config.interference * late
        for _ in range(_draw_count(rng, config.facts)):
            revising = rng.random() < config.overwrite + (1.0 - config.overwrite) * pressure / 2.0
            acts = (revisions.revise, additions.add)
            first, second = acts if revising else reversed(acts)
            if not first():
                second()
        for act in (revisions.repeat, revisions.revise):
            if number and rng.random() < pressure + config.interference / 2.0:
                act()
        story.beats.append(writer.beats)
    return story


def _draw_relations(
    rng: random.Random, lexicon: Lexicon, config: WorldConfig
) -> Iterator[Relation]:
    """Draw a share of every kind besides bonds; return it in the grammar's order."""
    kinds: dict[str, list[Relation]] = {}
    for relation in lexicon.relations.values():
        if relation.kind != "bond" and relation.name in (config.only or lexicon.relations):
            kinds.setdefault(relation.kind, []).append(relation)
    share = min(1.0, config.relations / sum(map(len, kinds.values())))
    drawn = {
        relation.name
        for relations in kinds.values()
        for relation in rng.sample(relations, max(1, round(share * len(relations))))
    }
    return (relation for relation in lexicon.relations.values() if relation.name in drawn)


def _draw_count(rng: random.Random, mean: float) -> int:
    """Draw a whole number around the mean."""
    spread = mean + rng.uniform(-1.0, 1.0) if mean >= 1.0 else mean
    whole = int(spread)
    return whole + (rng.random() < spread - whole)
