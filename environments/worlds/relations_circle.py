"""Friends, neighbours and the people one needs."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import PEOPLE, Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_BEST_FRIEND: Final = Relation(
    name="best_friend", kind="bond", values=PEOPLE, role="best friend",
    first=(
        "My best friend is {value}.", "{value} has been my best friend for ages.",
        "If I'm in trouble I ring {value}, my best friend.", "My best friend {value} knows all my secrets.",
        "Next to you, well, my best friend is {value}.", "I'd trust {value} with my life, best friend I ever had.",
        "That's {value}, my best friend, waving in the picture.", "Everybody needs a best friend and mine is {value}.",
    ),
    third=(
        "{name}'s best friend is {value}.", "{name} and {value} are best friends.",
        "{value} is the best friend {name} has got.",
        "When {name} is in trouble {he} rings {his} best friend, {value}.",
        "{value} knows all of {name}'s secrets, that's what a best friend is for.",
        "Nobody comes between {name} and {value}, that's {his} best friend.",
        "For {name} there is one best friend and that's {value}.",
        "If you can't reach {name}, try {value}, {his} best friend.",
    ),
    prompts=(
        "Who do you ring when things go wrong?", "Who are you closest to?",
        "Have you got a best friend?", "Who's waving in that picture?",
    ),
    asks={
        "now": (
            "Who is {name}'s best friend?", "What is the name of {name}'s best friend?",
            "What is {name}'s best friend called?", "Who does {name} call {his} best friend?",
            "Which person is the best friend of {name}?", "What is {name}'s closest friend called?",
            "Can you name {name}'s best friend?", "Who is closest to {name} as a friend?",
        ),
    },
)
_BOSS: Final = Relation(
    name="boss", kind="bond", values=PEOPLE, role="boss",
    first=(
        "My boss is called {value}.", "I report to {value}, who is my boss.",
        "{value} is my boss, heaven help us both.", "My boss {value} reads every single email.",
        "The boss in my life is {value}.", "I've got a decent boss, {value}.",
        "My boss's name is {value}.", "If I don't answer, it's because {value} is near. That's my boss.",
    ),
    third=(
        "{name}'s boss is called {value}.", "{name} reports to {value}, the boss.",
        "{value} is {name}'s boss.", "The boss of {name} is one {value}.",
        "{name} has a boss by the name of {value}.",
        "Do you know who is in charge of {name}? {value}, that's the boss.",
        "{name} gets on well with {his} boss {value}.",
        "When {value} walks in, {name} sits up, because that's {his} boss.",
    ),
    change=(
        "I've got a new boss, {value}.", "{when} {value} became my boss.",
        "No more {old}, my boss is {value} now.", "They replaced {old}, so {value} is my boss now.",
        "{value} took over as my boss {when}.", "My boss isn't {old} any longer, it's {value}.",
        "Change at the top: I report to a new boss, {value}.", "Since they reshuffled {when} my boss has been {value}.",
    ),
    prompts=(
        "How's the boss?", "Who do you report to?",
        "What's the mood in the office?", "Who's in charge of you?",
    ),
    asks={
        "now": (
            "Who is {name}'s boss now?", "What is the name of {name}'s boss?",
            "To whom does {name} report now, as {his} boss?", "What is {name}'s current boss called?",
            "Which person is {name}'s boss at present?", "Who is in charge of {name} at work these days?",
            "Can you name {name}'s present boss?", "Who is the boss of {name} at the moment?",
        ),
    },
)
_FLATMATE: Final = Relation(
    name="flatmate", kind="bond", values=PEOPLE, role="flatmate",
    first=(
        "My flatmate is called {value}.", "I share a flat with {value}.",
        "{value} is my flatmate, we split the bills.", "My flatmate {value} never buys milk.",
        "There are two of us here, me and my flatmate {value}.",
        "The one singing in the shower is {value}, my flatmate.",
        "My flatmate's name is {value}.", "I live with {value}, as flatmates, not as anything else.",
    ),
    third=(
        "{name}'s flatmate is called {value}.", "{name} shares a flat with {value}.",
        "{value} is {name}'s flatmate.", "The bills at {name}'s are split with {value}, the flatmate.",
        "{name} has a flatmate by the name of {value}.",
        "If {value} opens the door at {name}'s, don't be surprised, that's the flatmate.",
        "{name} and {value} are flatmates.", "Somebody keeps drinking {name}'s milk, and it's {value}, the flatmate.",
    ),
    change=(
        "I have a new flatmate, {value}.", "{when} {value} moved in as my flatmate.",
        "{old} moved out, my flatmate is {value} now.", "I share the flat with {value} now and not with {old}.",
        "{value} took the other room {when}, so that's my new flatmate.",
        "My flatmate isn't {old} any more. It's {value}.",
        "The empty room is taken, {value} is my flatmate now.",
        "Since {old} left I've been sharing the flat with {value}.",
    ),
    prompts=(
        "Do you live on your own?", "How's life in the flat?",
        "Who do you share with?", "Who keeps drinking your milk?",
    ),
    asks={
        "now": (
            "Who is {name}'s flatmate now?", "What is the name of {name}'s flatmate?",
            "With whom does {name} share a flat at present?", "What is {name}'s current flatmate called?",
            "Who shares the flat with {name} these days?", "Which person is {name}'s flatmate?",
            "Can you name {name}'s present flatmate?", "Who has the other room in {name}'s flat?",
        ),
    },
)
_NEIGHBOUR: Final = Relation(
    name="neighbour", kind="bond", values=PEOPLE, role="neighbour",
    first=(
        "My neighbour is called {value}.", "{value} lives next door to me.",
        "I've finally learnt my neighbour's name, it's {value}.",
        "My neighbour {value} waters everything when I'm away.",
        "The wall between us is thin, so I know my neighbour {value} quite well.",
        "Next door there's {value}, a good neighbour.",
        "I borrowed a ladder from my neighbour {value}.", "{value} is my neighbour and knows when I get home.",
    ),
    third=(
        "{name}'s neighbour is called {value}.", "{value} lives next door to {name}.",
        "{name} has a neighbour, {value}.", "The ladder at {name}'s belongs to {value}, the neighbour.",
        "{name} leaves a key with {his} neighbour {value}.", "{value} is the neighbour of {name}.",
        "Next door to {name} you'd find {value}.", "{name} chats with {value} over the fence, that's the neighbour.",
    ),
    prompts=(
        "What are your neighbours like?", "Who lives next door?",
        "Is it quiet where you are?", "Who waters things when you're away?",
    ),
    asks={
        "now": (
            "Who is {name}'s neighbour?", "What is the name of {name}'s neighbour?",
            "Who lives next door to {name}?", "What is {name}'s neighbour called?",
            "What does {name}'s neighbour go by?", "Which person is the neighbour of {name}?",
            "Can you name the neighbour that {name} has?", "Who would you meet next door to {name}'s home?",
        ),
    },
)
_MENTOR: Final = Relation(
    name="mentor", kind="bond", values=PEOPLE, role="mentor",
    first=(
        "My mentor is called {value}.", "{value} is my mentor.",
        "I've got a mentor, {value}, who asks awkward questions.",
        "All I know about deadlines I learnt from my mentor {value}.",
        "My mentor's name is {value}.", "Once a month I have lunch with {value}, my mentor.",
        "{value} took me on as a sort of pupil, so that's my mentor.", "The wise voice in my ear is my mentor {value}.",
    ),
    third=(
        "{name}'s mentor is called {value}.", "{name} has a mentor, {value}.",
        "{value} is the mentor of {name}.", "Once a month {name} has lunch with {value}, {his} mentor.",
        "Everything {name} knows comes from {value}, the mentor.", "The name of {name}'s mentor is {value}.",
        "{name} listens to nobody but {his} mentor {value}.", "It's {value} that mentors {name}.",
    ),
    prompts=(
        "Who do you learn from?", "Have you got someone to ask for advice?",
        "Do you have a mentor?", "Who keeps you on track?",
    ),
    asks={
        "now": (
            "Who is {name}'s mentor?", "What is the name of {name}'s mentor?",
            "What is {name}'s mentor called?", "Who mentors {name}?",
            "By whom is {name} mentored?", "Which person is the mentor of {name}?",
            "Can you name the mentor that {name} has?", "What does {name}'s mentor go by?",
        ),
    },
)
_DENTIST: Final = Relation(
    name="dentist", kind="bond", values=PEOPLE, role="dentist",
    first=(
        "My dentist is called {value}.", "I go to {value} for my teeth.",
        "{value} is my dentist and hums while drilling.", "My dentist's name is {value}.",
        "The only dentist I trust is {value}.", "I've been told off by my dentist, {value}.",
        "For fillings and lectures I have {value}, my dentist.",
        "If your tooth hurts, go to my dentist. The name is {value}.",
    ),
    third=(
        "{name}'s dentist is called {value}.", "{name} goes to {value} for {his} teeth.",
        "{value} is {name}'s dentist.", "The dentist {name} trusts is {value}.",
        "{name} swears by {value}, the dentist.", "{name} has a dentist by the name of {value}.",
        "When {name}'s tooth aches {he} rings {value}, the dentist.",
        "{name}'s teeth are in good hands, the dentist is {value}.",
    ),
    change=(
        "I've got a new dentist, {value}.", "{when} I changed dentists, I go to {value} now.",
        "My old dentist {old} retired, so {value} does my teeth now.", "I left {old} and my dentist is {value} now.",
        "{value} is my new dentist, I signed up {when}.", "My dentist isn't {old} any more, it's {value}.",
        "I found a gentler dentist: {value}.", "No more {old} for my teeth, {value} is my dentist now.",
    ),
    prompts=(
        "Do you know a good dentist?", "How are your teeth?",
        "Who looks after your teeth?", "Did you get that tooth seen to?",
    ),
    asks={
        "now": (
            "Who is {name}'s dentist now?", "What is the name of {name}'s dentist?",
            "What is {name}'s current dentist called?", "To which dentist does {name} go these days?",
            "Who looks after {name}'s teeth at present?", "Whom does {name} ring as {his} dentist now?",
            "Can you name {name}'s present dentist?", "Which person is {name}'s dentist at the moment?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _BEST_FRIEND,
    _BOSS,
    _FLATMATE,
    _NEIGHBOUR,
    _MENTOR,
    _DENTIST,
)
"""Friends, neighbours and the people one needs."""
