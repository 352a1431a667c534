"""The large grammar: everyday life as friends tell it in messages, put together from
the modules that hold its data.
"""

from __future__ import annotations

from typing import Final

from environments.worlds import (
    manners,
    names,
    relations_body,
    relations_circle,
    relations_culture,
    relations_fandom,
    relations_health,
    relations_home,
    relations_leisure,
    relations_luck,
    relations_people,
    relations_plans,
    relations_study,
    relations_tastes,
    relations_things,
    relations_travel,
    relations_work,
    smalltalk,
)
from environments.worlds.spec import Grammar

EVERYDAY: Final = Grammar(
    relations=(
        *relations_home.RELATIONS,
        *relations_work.RELATIONS,
        *relations_study.RELATIONS,
        *relations_people.RELATIONS,
        *relations_circle.RELATIONS,
        *relations_tastes.RELATIONS,
        *relations_fandom.RELATIONS,
        *relations_health.RELATIONS,
        *relations_body.RELATIONS,
        *relations_culture.RELATIONS,
        *relations_leisure.RELATIONS,
        *relations_things.RELATIONS,
        *relations_travel.RELATIONS,
        *relations_plans.RELATIONS,
        *relations_luck.RELATIONS,
    ),
    people=names.PEOPLE,
    pools=names.POOLS,
    named_pools=names.NAMED,
    openings=manners.OPENINGS,
    hellos=manners.HELLOS,
    closings=manners.CLOSINGS,
    small_talk=smalltalk.SMALL_TALK,
    jokes=smalltalk.JOKES,
    replies=manners.REPLIES,
    fillers=manners.FILLERS,
    denials=manners.DENIALS,
    reminders=manners.REMINDERS,
)
"""Everything that dialogues of the levels `standard` and `rich` are made of."""
