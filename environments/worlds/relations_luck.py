"""Quarrels and strokes of luck, each with its cause."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_QUARREL: Final = Relation(
    name="quarrel", kind="cause", values="",
    pairs=(
        ("stopped speaking to {his} oldest colleague", "a private letter had been read out at lunch"),
        ("walked out of the wedding", "the speech had made fun of {his} accent"),
        ("deleted all {his} accounts", "someone had been posting under {his} name"),
        ("gave back the borrowed ladder", "the fence had gone up without asking"),
        ("left the group chat", "the jokes about {his} cooking had gone too far"),
        ("slept in the car", "{he} had forgotten the anniversary"),
        ("boycotted the reunion", "{his} former headmaster was on the guest list"),
        ("shouted at the postman", "the parcel had been thrown over the gate"),
        ("refused to dance", "{his} shoes were two sizes too small"),
        ("returned the birthday present", "it had come from {his} own cupboard"),
        ("wrote an angry letter to the mayor", "the old chestnut trees had been felled"),
        ("sold the family piano", "nobody had tuned it in fifteen years"),
        ("hung up on {his} best customer", "{he} had been called a liar"),
        ("moved the party indoors", "a swarm of bees had settled on the table"),
    ),
    first=(
        "I {value} {when}.", "{when} I {value} and I feel odd about it.",
        "You should hear it from me: I {value}.", "It's been tense, I {value}.",
        "I never do things like that, but I {value}.", "Well, I {value} {when}, so there.",
        "Don't judge me, I {value}.", "My week, in short: I {value}.",
    ),
    third=(
        "{name} {value} {when}.", "{when} {name} {value}, did you know?",
        "Everybody talks about it, {name} {value}.", "You should know that {name} {value}.",
        "{name} never does things like that, but {he} {value} {when}.", "It's been tense, {name} {value}.",
        "Don't judge {name}, but {he} {value}.", "So, {name} {value}.",
    ),
    reason=(
        "It was because {cause}.", "To be fair, {cause}, that's why.",
        "There was a reason for it: {cause}.", "You have to understand that {cause}, hence all this.",
        "I did it because {cause}.", "Let me explain, {cause}. That's the reason.",
        "I {value} because {cause}.", "In the end it comes down to this, {cause}.",
    ),
    prompts=(
        "What's the drama?", "How are you getting on with everybody?",
        "Has anything happened between you lot?", "What's the latest in the saga?",
    ),
    asks={
        "why": (
            "Why is it that {name} {value}?", "What was the reason that {name} {value}?",
            "How come {name} {value}?", "What was behind it when {name} {value}?",
            "What had happened, so that {name} {value}?", "What explains that {name} {value}?",
            "For what reason is it that {name} {value}?", "What drove it, when {name} {value}?",
        ),
    },
)
_LUCKY_DAY: Final = Relation(
    name="lucky_day", kind="cause", values="", tone="good",
    pairs=(
        ("got a free dinner", "the waiter had spilt soup on {his} coat"),
        ("was on local television", "{he} had pulled a swan out of a storm drain"),
        ("won a year of free bread", "{he} was the ten thousandth customer"),
        ("got {his} stolen bike back", "a policeman had recognised the bell"),
        ("met {his} favourite author", "the bookshop had mixed up two events"),
        ("was given a piano", "the school next door was closing"),
        ("had a day off in the middle of the week", "the heating at work had failed"),
        ("found the missing photo album", "the attic had to be cleared for the roofers"),
        ("danced in the rain", "the hosepipe ban had been lifted"),
        ("was handed the keys to a sports car", "the garage had double-booked {his} own"),
        ("watched a film alone in an empty cinema", "everyone else was at the cup final"),
        ("paid nothing for the haircut", "the apprentice had practised on {him}"),
        ("slept until noon", "the church clock had stopped"),
        ("got an apology from the bank", "a clerk had added a zero"),
    ),
    first=(
        "I {value} {when}!", "{when} I {value}, I still can't believe it.",
        "Are you sitting down? I {value}.", "Things like that never happen to me, but I {value}.",
        "Best day in ages, I {value} {when}.", "You'll never guess, I {value}.",
        "Well, you might as well hear it from me, I {value} {when}.", "I'm grinning like a fool, because I {value}.",
    ),
    third=(
        "{name} {value} {when}!", "{when} {name} {value}, can you believe it?",
        "Are you sitting down? {name} {value}.", "Things like that only happen to {name}, {he} {value} {when}.",
        "You'll never guess, {name} {value}.", "{name} is grinning like a fool, {he} {value}.",
        "Best day in ages for {name}, {he} {value} {when}.", "It's all over the place already, {name} {value}.",
    ),
    reason=(
        "It was because {cause}.", "You wonder how? Well, {cause}.",
        "And the reason? That {cause}.", "It only happened because {cause}.",
        "Pure luck: {cause}.", "I {value} because {cause}.",
        "What happened was that {cause}, and that's why.", "The secret behind it is that {cause}.",
    ),
    prompts=(
        "Why are you in such a good mood?", "What's put you in such good spirits?",
        "Anything good to report?", "Come on, what happened?",
    ),
    asks={
        "why": (
            "Why is it that {name} {value}?", "What was the reason that {name} {value}?",
            "How come {name} {value}?", "Thanks to what is it that {name} {value}?",
            "What had happened, so that {name} {value}?", "What explains that {name} {value}?",
            "For what reason is it that {name} {value}?", "What was behind it when {name} {value}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _QUARREL,
    _LUCKY_DAY,
)
"""Quarrels and strokes of luck, each with its cause."""
