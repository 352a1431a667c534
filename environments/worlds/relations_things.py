"""Things made, bought, lost and seen."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_CRAFT: Final = Relation(
    name="craft", kind="event", values="crafts", tone="good",
    first=(
        "I made {a_value} with my own hands, it was finished {when}.", "{when} I put the last touch to {a_value}.",
        "Behold, I built {a_value}! I finished it {when}.",
        "All those evenings paid off, I completed {a_value} {when}.",
        "I've got glue in my hair, but {when} I finished making {a_value}.",
        "{when} I was done with my big project, {a_value}.",
        "I can hardly believe I made {a_value}, it got done {when}.",
        "I finished {a_value} {when} and only swore twice.",
    ),
    third=(
        "{name} made {a_value}, it was finished {when}.", "{when} {name} put the last touch to {a_value}.",
        "{name} built {a_value} and was done with it {when}.",
        "All those evenings paid off, {name} completed {a_value} {when}.",
        "{name} finished making {a_value} {when}, glue in {his} hair and all.",
        "You have to see what {name} made: {a_value}, finished {when}.",
        "{when} {name} was done with {his} big project, {a_value}.",
        "With {his} own hands {name} made {a_value}, and {when} it was ready.",
    ),
    hearsay=(
        "I heard {name} made {a_value}, and that it was done {when}.", "Someone said {when} {name} finished {a_value}.",
        "Apparently {name} built {a_value} and completed it {when}.",
        "Didn't {name} make {a_value} and finish it {when}?",
        "I think {when} {name} was done with making {a_value}.",
        "Supposedly {name} put the last touch to {a_value} {when}.",
        "They say {name} made {a_value} by hand, ready since {when}.",
        "If the picture is really {his}, {name} finished {a_value} {when}.",
    ),
    correct=(
        "I said I made {a_old}, it was {a_value}.", "Not {a_old}, {a_value}. That's what I built.",
        "What I finished was {a_value}, {a_old} is next on the list.",
        "Sorry, I've never made {a_old} in my life, it was {a_value}.",
        "I meant {a_value}, I can't think why I wrote {a_old}.",
        "It's {a_value} that I made, {a_old} was my first idea.",
        "Slip of the pen: {a_value} is done, {a_old} doesn't exist.",
        "I wrote {a_old}, but it's {a_value} that is standing here finished.",
    ),
    prompts=(
        "What are you making?", "How's the big project going?",
        "Why is there glue in your hair?", "Have you finished anything lately?",
    ),
    asks={
        "then": (
            "What did {name} finish making {when}?", "Which project did {name} complete {when}?",
            "What had {name} made that was finished {when}?", "What was {name} done with {when}, in crafts?",
            "What did {name} put the last touch to {when}?", "Which handmade thing did {name} finish {when}?",
            "What did {name} complete with {his} own hands {when}?", "What was ready at {name}'s workbench {when}?",
        ),
        "when": (
            "When did {name} finish making the {value}?", "On what day was {name}'s {value} finished?",
            "When did {name} complete the {value}?", "What was the date on which {name} finished the {value}?",
            "When did {name} put the last touch to the {value}?", "What day was {name} done with the {value}?",
            "When was the {value} that {name} made ready?", "When was it that {name} finished the {value}?",
        ),
        "order": (
            "Which did {name} finish first, the {value} or the {other}?",
            "Did {name} make the {value} or the {other} first?",
            "Which project of {name}'s was done first: the {value} or the {other}?",
            "What did {name} complete earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} make first?",
            "Was it the {value} or the {other} that {name} finished first?",
            "Between the {value} and the {other}, what was ready earlier at {name}'s?",
            "Which came first from {name}'s hands, the {value} or the {other}?",
        ),
    },
)
_SIGHTING: Final = Relation(
    name="sighting", kind="event", values="sightings",
    first=(
        "I saw {a_value} {when}!", "{when} I spotted {a_value} on my walk.",
        "I stood quite still, because there was {a_value} in front of me {when}.",
        "Guess what crossed my path {when}? It was {a_value}.",
        "I couldn't believe my eyes {when}: {a_value}.", "I waited for hours and {when} I got to see {a_value}.",
        "{a_value} showed itself to me {when}, I nearly dropped the binoculars.",
        "My heart stopped {when}, I came face to face with {a_value}, more or less.",
    ),
    third=(
        "{name} saw {a_value} {when}!", "{when} {name} spotted {a_value} on a walk.",
        "{name} stood quite still {when}, because {he} was looking at {a_value}.",
        "{name} couldn't believe {his} eyes {when}, it was {a_value}.",
        "After hours of waiting {name} got to see {a_value} {when}.",
        "{when} {name} nearly dropped the binoculars, there was {a_value}.",
        "You should hear {name} tell it, {he} saw {a_value} {when}.",
        "{when} it happened, {name} got a good look at {a_value}.",
    ),
    hearsay=(
        "I heard {name} saw {a_value} {when}.", "Someone says {when} {name} spotted {a_value}.",
        "Apparently {name} got to see {a_value} {when}.", "Didn't {name} see {a_value} on a walk {when}?",
        "I think {name} claims that {he} saw {a_value} {when}.", "Supposedly {when} {name} was looking at {a_value}.",
        "They say {name} caught sight of {a_value} {when}.", "If {he} wasn't dreaming, {name} saw {a_value} {when}.",
    ),
    correct=(
        "I said I saw {a_old}, it was {a_value} when I looked it up.", "Not {a_old}, {a_value}. That's what I spotted.",
        "I checked the book: what I saw was {a_value}, not {a_old}.",
        "Sorry, it wasn't {a_old} at all, it was {a_value}.",
        "I got too excited, {a_old} would be a miracle. I saw {a_value}.",
        "It was {a_value} that I saw, why did I write {a_old}?",
        "Wrong word, {a_value} and not {a_old} was what I spotted.",
        "Please don't report {a_old} to anyone, I saw {a_value}.",
    ),
    prompts=(
        "Seen anything nice outdoors?", "How was your walk?",
        "Why are you carrying binoculars?", "Any encounters with nature?",
    ),
    asks={
        "then": (
            "What did {name} spot {when}?", "What did {name} see on {his} walk {when}?",
            "What wonder of nature did {name} see {when}?", "What did {name} get a look at {when}?",
            "Of what did {name} catch sight {when}?", "What did {name} come across {when}, out in nature?",
            "What made {name} stand still {when}?", "What was it that {name} saw outdoors {when}?",
        ),
        "when": (
            "When did {name} see the {value}?", "On what day did {name} spot the {value}?",
            "When did {name} get to see {a_value}?", "What was the date on which {name} saw the {value}?",
            "When did {name} catch sight of {a_value}?", "What day did {name} see the {value}?",
            "When was it that {name} spotted {a_value}?", "On which date did {name} get a look at the {value}?",
        ),
        "order": (
            "Which did {name} see first, the {value} or the {other}?",
            "Did {name} spot the {value} or the {other} first?",
            "Which sighting came first for {name}: the {value} or the {other}?",
            "What did {name} get to see earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} see first?",
            "Was it the {value} or the {other} that {name} spotted first?",
            "Between the {value} and the {other}, what did {name} see earlier?",
            "Which did {name} come across first, the {value} or the {other}?",
        ),
    },
)
_BOUGHT: Final = Relation(
    name="bought", kind="event", values="items",
    first=(
        "I bought {a_value} {when}.", "{when} I treated myself to {a_value}.",
        "I gave in, {when} I ordered {a_value} and it's here.", "My bank account is crying, I bought {a_value} {when}.",
        "{when} I walked past a sale and came out with {a_value}.", "I've got {a_value} now, I paid for it {when}.",
        "It was on offer, so I bought {a_value} {when}. No regrets.",
        "Look what I lugged home {when}! I bought {a_value}.",
    ),
    third=(
        "{name} bought {a_value} {when}.", "{when} {name} treated {him}self to {a_value}.",
        "{name} gave in and bought {a_value} {when}.", "{name}'s bank account is crying, {he} bought {a_value} {when}.",
        "{when} {name} came out of a sale with {a_value}.", "I helped {name} to lug home {a_value} {when}, brand new.",
        "{name} paid for {a_value} {when}, and {he} has no regrets.",
        "Guess what {name} bought {when}? It was {a_value}.",
    ),
    hearsay=(
        "I heard {name} bought {a_value} {when}.", "Someone saw {name} paying for {a_value} {when}.",
        "Apparently {when} {name} treated {him}self to {a_value}.", "Didn't {name} buy {a_value} {when}?",
        "I believe {name} came out of a shop with {a_value} {when}.", "They say {when} {name} bought {a_value}.",
        "Supposedly {name} gave in {when} and got {a_value}.",
        "If it wasn't for somebody else, {name} bought {a_value} {when}.",
    ),
    correct=(
        "I said I bought {a_old}, it was {a_value}.", "Not {a_old}, {a_value}. That's what I bought.",
        "I looked at {a_old} as well, but what I paid for was {a_value}.", "Sorry, I bought {a_value} and not {a_old}.",
        "The parcel holds {a_value}, I don't know why I wrote {a_old}.",
        "I wanted {a_old} once, what I got was {a_value}.",
        "Please swap the words, I bought {a_value} and never {a_old}.",
        "Did I say {a_old}? The receipt says {a_value}.",
    ),
    prompts=(
        "Did you buy anything nice?", "What's in the parcel?",
        "Been shopping?", "What did you treat yourself to?",
    ),
    asks={
        "then": (
            "What did {name} buy {when}?", "What did {name} treat {him}self to {when}?",
            "Which thing did {name} pay for {when}?", "What purchase did {name} make {when}?",
            "What did {name} come home from the shops with {when}?", "What was on {name}'s receipt {when}?",
            "Which new thing did {name} get {when}?", "On what did {name} spend money {when}?",
        ),
        "when": (
            "When did {name} buy the {value}?", "On what day did {name} buy {a_value}?",
            "When did {name} treat {him}self to {a_value}?", "What was the date on which {name} bought the {value}?",
            "When did {name} pay for the {value}?", "What day did {name} come home with the {value}?",
            "When was it that {name} bought {a_value}?", "When did {name} get {his} {value}?",
        ),
        "order": (
            "Which did {name} buy first, the {value} or the {other}?",
            "Did {name} get the {value} or the {other} first?",
            "Which purchase came first for {name}: the {value} or the {other}?",
            "What did {name} pay for earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} buy first?",
            "Was it the {value} or the {other} that {name} bought first?",
            "Between the {value} and the {other}, what did {name} buy earlier?",
            "Which did {name} treat {him}self to first, the {value} or the {other}?",
        ),
    },
)
_LOST: Final = Relation(
    name="lost", kind="event", values="lost_things", tone="bad",
    first=(
        "I lost my {value} {when}.", "{when} my {value} disappeared.",
        "I've turned the whole place over, but my {value} has been missing since it vanished {when}.",
        "Have you seen my {value}? I lost it {when}.",
        "Somewhere on the bus {when} I lost my {value}.", "I put my {value} down for a second {when} and it was gone.",
        "{when} I got home without my {value}. Lost, for good.", "Farewell to my {value}, I lost it {when}.",
    ),
    third=(
        "{name} lost {his} {value} {when}.", "{when} {name}'s {value} disappeared.",
        "If you find a {value}, it's probably {name}'s, {he} lost it {when}.",
        "Somewhere on the bus {when} {name} lost {his} {value}.",
        "{name} got home without {his} {value} {when}.",
        "{name} put {his} {value} down for a second {when} and it was gone.",
        "{name} turned the whole place over for {his} {value}, which {he} lost {when}.",
        "{when} {name} managed to lose {his} {value}.",
    ),
    hearsay=(
        "I heard {name} lost {his} {value} {when}.", "Someone said that {when} {name}'s {value} disappeared.",
        "Apparently {name} has been without a {value} since {he} lost it {when}.",
        "Didn't {name} lose {his} {value} {when}?",
        "I think it was a {value} that {name} lost {when}.", "They say {name} got home without {his} {value} {when}.",
        "Supposedly {name} left {his} {value} somewhere {when} and never found it.",
        "If I got it right, {when} {name} lost {his} {value}.",
    ),
    correct=(
        "I said I lost my {old}, it's my {value} that's gone.", "Not my {old}, my {value}. That's what I lost.",
        "My {old} is right here, what I lost was my {value}.", "Sorry, I lost my {value} and not my {old}.",
        "I was in a panic when I wrote {old}, the lost thing is my {value}.",
        "It's my {value} that is missing, I have the {old} in my hand.",
        "Call off the search for the {old}, please look for my {value}.", "Did I write {old}? I lost my {value}.",
    ),
    prompts=(
        "You sound flustered, did something happen?", "Did you lose anything?",
        "Why were you crawling under the sofa?", "What are you looking for?",
    ),
    asks={
        "then": (
            "What did {name} lose {when}?", "Which thing of {name}'s disappeared {when}?",
            "What went missing for {name} {when}?", "What had {name} lost when {he} came home {when}?",
            "Which of {his} things did {name} lose {when}?",
            "What did {name} leave somewhere {when}, never to be found?",
            "What was gone from {name}'s belongings {when}?", "What belonging vanished on {name} {when}?",
        ),
        "when": (
            "When did {name} lose {his} {value}?", "On what day did {name}'s {value} disappear?",
            "When did {name}'s {value} go missing?", "What was the date on which {name} lost {his} {value}?",
            "Since when has {name}'s {value} been gone?", "What day did {name} come home without {his} {value}?",
            "When was it that {name} lost the {value}?", "When did {name} leave the {value} somewhere?",
        ),
        "order": (
            "Which did {name} lose first, the {value} or the {other}?",
            "Did {name} lose {his} {value} or {his} {other} first?",
            "Which loss came first for {name}: the {value} or the {other}?",
            "What went missing earlier for {name}, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} lose first?",
            "Was it the {value} or the {other} that {name} lost first?",
            "Between the {value} and the {other}, what disappeared earlier on {name}?",
            "Which was gone earlier from {name}'s things, the {value} or the {other}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _CRAFT,
    _SIGHTING,
    _BOUGHT,
    _LOST,
)
"""Things made, bought, lost and seen."""
