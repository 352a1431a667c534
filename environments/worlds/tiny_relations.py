"""The eight relations of the small grammar."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import PEOPLE, Relation

_LIVES_IN: Final = Relation(
    name="lives_in",
    kind="state",
    values="towns",
    first=(
        "I live in {value}.", "my home is in {value}.", "{value} is my home.", "I have my home in {value}.",
        "{value} is where I live.", "my home, it is in {value}.",
    ),
    third=(
        "{name} lives in {value}.", "{name} is at home in {value}.", "{value} is where {name} lives.",
        "the home of {name} is in {value}.", "{name} has a home in {value}.", "{value} is the home of {name}.",
    ),
    hearsay=(
        "I heard that {name} lives in {value}.", "they say {name} lives in {value}.",
        "they say {value} is the home of {name}.", "I heard that the home of {name} is {value}.",
    ),
    change=(
        "I moved to {value} {when}.", "I moved to {value}.", "I moved from {old} to {value}.",
        "{when} I moved from {old} to {value}.", "{when} I moved to {value}.", "my home is now in {value}, not {old}.",
    ),
    change_third=(
        "{name} moved to {value} {when}.", "{name} moved to {value}.", "{name} moved from {old} to {value}.",
        "{when} {name} moved from {old} to {value}.", "{when} {name} moved to {value}.", "{name} now lives in {value}.",
    ),
    correct=(
        "sorry, not {old}, I live in {value}.", "no, my home is {value}, not {old}.",
        "sorry, my home is {value}, not {old}.", "no, not {old}, I live in {value}.",
    ),
    prompts=("where do you live?", "where is your home?"),
    jokes=("one day I live in {value}, ha ha.", "my home is {value}, ha ha."),
    asks={
        "now": (
            "where does {name} live now?", "where is the home of {name} now?",
            "where is {name} at home now?", "where does {name} live?",
        ),
        "then": (
            "where did {name} live {when}?", "where was the home of {name} {when}?",
            "{when}, where did {name} live?", "{when}, where was the home of {name}?",
        ),
        "when": (
            "when did {name} move to {value}?", "what day did {name} move to {value}?",
            "on what day did {name} move to {value}?", "when was the move of {name} to {value}?",
        ),
        "who": (
            "who lives in {value}?", "who has a home in {value}?", "who is at home in {value}?",
            "who lives now in {value}?",
        ),
        "order": (
            "where did {name} live first, {value} or {other}?", "what was first for {name}, {value} or {other}?",
            "where was {name} first, {value} or {other}?", "what did {name} live in first, {value} or {other}?",
        ),
    },
)  # fmt: skip
_WORKS_AS: Final = Relation(
    name="works_as",
    kind="state",
    values="jobs",
    first=(
        "I work as {a_value}.", "my job is {value}.", "I am {a_value} at work.", "at work I am {a_value}.",
        "I have a job as {a_value}.", "my work is {value}.",
    ),
    third=(
        "{name} works as {a_value}.", "the job of {name} is {value}.", "{name} is {a_value} at work.",
        "{name} has a job as {a_value}.", "{name} has work as {a_value}.", "the work of {name} is {value}.",
    ),
    hearsay=(
        "I heard that {name} works as {a_value}.", "they say {name} is {a_value} at work.",
        "they say {name} works as {a_value}.", "I heard that the job of {name} is {value}.",
    ),
    change=(
        "I am now {a_value}.", "{when} I started work as {a_value}.", "I started work as {a_value}.",
        "I started a job as {a_value} {when}.", "I am now {a_value}, not {a_old}.", "my job is now {value}.",
    ),
    change_third=(
        "{name} is now {a_value}.", "{when} {name} started work as {a_value}.", "{name} started work as {a_value}.",
        "{name} started a job as {a_value} {when}.", "{name} is now {a_value}, not {a_old}.", "{name} now works as {a_value}.",
    ),
    correct=(
        "sorry, not {old}, my job is {value}.", "no, I am {a_value}, not {a_old}.",
        "sorry, I am {a_value}, not {a_old}.", "no, my job is {value}, not {old}.",
    ),
    prompts=("what is your job?", "what is your work?"),
    jokes=("one day I am {a_value}, ha ha.", "my job is {value}, ha ha."),
    asks={
        "now": (
            "what is the job of {name} now?", "what does {name} work as now?",
            "what does {name} work as?", "what is the work of {name} now?",
        ),
        "then": (
            "what was the job of {name} {when}?", "what did {name} work as {when}?",
            "{when}, what was the job of {name}?", "{when}, what did {name} work as?",
        ),
        "when": (
            "when did {name} start as {a_value}?", "what day did {name} start as {a_value}?",
            "on what day did {name} start as {a_value}?", "when did {name} start the job as {a_value}?",
        ),
        "who": (
            "who works as {a_value}?", "who is {a_value} at work?", "who has a job as {a_value}?",
            "who is now {a_value}?",
        ),
        "order": (
            "what was {name} first, {value} or {other}?", "what job did {name} have first, {value} or {other}?",
            "what did {name} work as first, {value} or {other}?", "what was the first job of {name}, {value} or {other}?",
        ),
    },
)  # fmt: skip
_LIKES: Final = Relation(
    name="likes",
    kind="preference",
    values="foods",
    first=(
        "I like {value} best.", "my best food is {value}.", "I love {value}.", "{value} is my best food.",
        "the food I love is {value}.", "of food, I love {value} best.",
    ),
    third=(
        "{name} likes {value} best.", "the best food of {name} is {value}.", "{name} loves {value}.",
        "{value} is the best food of {name}.", "the food {name} loves is {value}.", "of food, {name} loves {value} best.",
    ),
    hearsay=(
        "I heard that {name} likes {value} best.", "they say {name} loves {value}.",
        "they say {name} likes {value} best.", "I heard that {name} loves {value}.",
    ),
    change=(
        "I now like {value} best.", "I now love {value}, not {old}.", "my best food is now {value}.",
        "I like {value} best now, not {old}.", "I now love {value} best.", "the food I love is now {value}.",
    ),
    change_third=(
        "{name} now likes {value} best.", "{name} now loves {value}, not {old}.",
        "the best food of {name} is now {value}.", "{name} likes {value} best now, not {old}.",
        "{name} now loves {value} best.", "the food {name} loves is now {value}.",
    ),
    correct=(
        "sorry, not {old}, I like {value} best.", "no, I love {value}, not {old}.",
        "sorry, I love {value}, not {old}.", "no, not {old}, I like {value} best.",
    ),
    prompts=("what food do you like?", "what is your best food?"),
    jokes=("one day I love {value}, ha ha.", "I love {value}, ha ha."),
    asks={
        "now": (
            "what food does {name} like best now?", "what is the best food of {name} now?",
            "what does {name} love now?", "what food does {name} love best?",
        ),
        "then": (
            "what food did {name} like best {when}?", "what was the best food of {name} {when}?",
            "{when}, what food did {name} like best?", "{when}, what did {name} love best?",
        ),
        "who": (
            "who likes {value} best?", "who loves {value}?", "who loves {value} best?", "who likes {value} best now?",
        ),
    },
)  # fmt: skip
_HAS: Final = Relation(
    name="has",
    kind="set",
    values="pets",
    first=(
        "I have {a_value}.", "{when} I got {a_value}.", "I got {a_value} {when}.", "my new pet is {a_value}.",
        "I got {a_value}, my new pet.", "{when} I got {a_value} as a pet.",
    ),
    third=(
        "{name} has {a_value}.", "{when} {name} got {a_value}.", "{name} got {a_value} {when}.",
        "the new pet of {name} is {a_value}.", "{name} got {a_value} as a pet.",
        "{when} {name} got {a_value} as a pet.",
    ),
    hearsay=(
        "I heard that {name} has {a_value}.", "they say {name} has {a_value}.", "they say {name} got {a_value}.",
        "I heard that {name} got {a_value}.",
    ),
    remove=(
        "my {value} is gone.", "I no longer have the {value}.", "the {value} is gone.",
        "I have the {value} no longer.",
    ),
    remove_third=(
        "the {value} of {name} is gone.", "{name} no longer has the {value}.", "{name} has the {value} no longer.",
        "the {value} that {name} has got is gone.",
    ),
    prompts=("do you have a pet?", "what pet do you have?"),
    jokes=("one day I have {a_value}, ha ha.", "my pet is {a_value}, ha ha."),
    asks={
        "now": (
            "what pet does {name} have now?", "what pet has {name} now?", "what pet does {name} have?",
            "what pet has {name} got now?",
        ),
        "count": (
            "how many pets does {name} have now?", "how many pets has {name} now?", "how many pets has {name} got now?",
            "how many pets does {name} have?",
        ),
        "when": (
            "when did {name} get the {value}?", "what day did {name} get the {value}?",
            "on what day did {name} get the {value}?", "when has {name} got the {value}?",
        ),
        "who": (
            "who has {a_value}?", "who has {a_value} as a pet?", "who has got {a_value}?", "who has {a_value} now?",
        ),
        "order": (
            "what did {name} get first, the {value} or the {other}?",
            "what pet did {name} have first, {value} or {other}?",
            "what pet did {name} get first, {value} or {other}?",
            "what was first for {name}, the {value} or the {other}?",
        ),
    },
)  # fmt: skip
_BOUGHT: Final = Relation(
    name="bought",
    kind="event",
    values="things",
    first=(
        "I bought {a_value} {when}.", "{when} I bought {a_value}.", "{when} I went and bought {a_value}.",
        "I went and bought {a_value} {when}.", "I bought {a_value} for my home {when}.",
        "{when} I bought {a_value} for my home.",
    ),
    third=(
        "{name} bought {a_value} {when}.", "{when} {name} bought {a_value}.",
        "{when} {name} went and bought {a_value}.", "{name} went and bought {a_value} {when}.",
        "{name} bought {a_value} for the home {when}.", "{when} {name} bought {a_value} for the home.",
    ),
    hearsay=(
        "I heard that {name} bought {a_value} {when}.", "they say {name} bought {a_value} {when}.",
        "they say that {when} {name} bought {a_value}.", "I heard that {when} {name} bought {a_value}.",
    ),
    correct=(
        "sorry, not {a_old}, I bought {a_value}.", "no, it was {a_value} that I bought, not {a_old}.",
        "sorry, I bought {a_value}, not {a_old}.", "no, I bought {a_value}, not {a_old}.",
    ),
    prompts=("what have you bought?", "what did you get?"),
    jokes=("one day I bought {a_value}, ha ha.", "I bought {a_value}, ha ha."),
    asks={
        "then": (
            "what did {name} buy {when}?", "{when}, what did {name} buy?", "what was it that {name} bought {when}?",
            "{when}, what was it that {name} bought?",
        ),
        "when": (
            "when did {name} buy the {value}?", "what day did {name} buy the {value}?",
            "on what day did {name} buy the {value}?", "when was it that {name} bought the {value}?",
        ),
        "order": (
            "what did {name} buy first, the {value} or the {other}?",
            "what was bought first by {name}, the {value} or the {other}?",
            "what was it that {name} bought first, {value} or {other}?",
            "what has {name} bought first, the {value} or the {other}?",
        ),
        "count": (
            "how many things has {name} bought?", "how many things did {name} buy?",
            "how many things were bought by {name}?", "of things, how many did {name} buy?",
        ),
        "who": (
            "who bought the {value}?", "who has bought the {value}?", "by who was the {value} bought?",
            "who went and bought the {value}?",
        ),
    },
)  # fmt: skip
_WILL_VISIT: Final = Relation(
    name="will_visit",
    kind="plan",
    values="sights",
    first=(
        "{when} I will visit the {value}.", "I will visit the {value} {when}.",
        "my plan is to visit the {value} {when}.", "I plan to visit the {value} {when}.",
        "{when} I plan to visit the {value}.", "the plan is to visit the {value} {when}.",
    ),
    third=(
        "{when} {name} will visit the {value}.", "{name} will visit the {value} {when}.",
        "{name} has a plan to visit the {value} {when}.", "the plan of {name} is to visit the {value} {when}.",
    ),
    done=(
        "I did visit the {value}.", "my visit to the {value} went well.", "the visit to the {value} went well.",
        "I did visit the {value} and it went well.",
    ),
    cancelled=(
        "I will not visit the {value}.", "the visit to the {value} is off.", "my visit to the {value} is off.",
        "no, I will not visit the {value}.",
    ),
    moved=(
        "my visit to the {value} is now {when}.", "I will now visit the {value} {when}.",
        "the visit to the {value} moved, it is now {when}.", "{when} is now my visit to the {value}.",
    ),
    prompts=("what is your plan?", "what will you do?"),
    asks={
        "when": (
            "when is the visit of {name} to the {value}?", "what day is the visit of {name} to the {value}?",
            "on what day is the visit of {name} to the {value}?", "when is the plan of {name} to visit the {value}?",
        ),
        "outcome": (
            "did {name} visit the {value}?", "did the visit of {name} to the {value} go well?",
            "did {name} go to visit the {value}?", "did {name} go on the visit to the {value}?",
        ),
    },
)  # fmt: skip
_FELT: Final = Relation(
    name="felt",
    kind="cause",
    values="",
    pairs=tuple(
        (feeling, cause)
        for feeling in "sad late sick happy tired wet".split()
        for cause in "rain snow wind noise music work".split()
    ),
    first=("I was {value} {when}.", "{when} I was {value}.", "{when} I was so {value}.", "I was so {value} {when}."),
    third=(
        "{name} was {value} {when}.", "{when} {name} was {value}.", "{when} {name} was so {value}.",
        "{name} was so {value} {when}.",
    ),
    reason=(
        "it was the {cause}.", "the {cause}, it was from that.", "I was {value} from the {cause}.",
        "it was from the {cause}.",
    ),
    prompts=("how are you?", "how was it?"),
    asks={
        "why": (
            "why was {name} {value}?", "from what was {name} {value}?", "what was it from that {name} was {value}?",
            "why was it that {name} was {value}?",
        ),
        "when": (
            "when was {name} {value}?", "what day was {name} {value}?", "on what day was {name} {value}?",
            "when was it that {name} was {value}?",
        ),
    },
)  # fmt: skip
_FRIEND: Final = Relation(
    name="friend",
    kind="bond",
    values=PEOPLE,
    role="friend",
    first=(
        "my friend is {value}.", "{value} is my friend.", "I have a friend, {value}.", "my best friend is {value}.",
    ),
    third=(
        "the friend of {name} is {value}.", "{value} is the friend of {name}.", "{name} has a friend, {value}.",
        "the best friend of {name} is {value}.",
    ),
    prompts=("who is your friend?", "do you have a friend?"),
    asks={
        "now": (
            "who is the friend of {name}?", "who is the best friend of {name}?", "who is the friend of {name} now?",
            "{name} has a friend, who is it?",
        ),
    },
)  # fmt: skip

RELATIONS: Final = (_LIVES_IN, _WORKS_AS, _LIKES, _HAS, _BOUGHT, _WILL_VISIT, _FELT, _FRIEND)
"""A state twice, a preference, a set, an event, a plan, a cause and a bond."""
