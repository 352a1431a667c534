"""Trips, outings and evenings out."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_TRIP: Final = Relation(
    name="trip", kind="event", values="countries", company=True,
    first=(
        "I got back from {value} {when}.", "{when} I flew home from {value}, where {person} and I had a lovely time.",
        "I've been to {value}! I came back {when}.", "{value} was wonderful, I landed here again {when}.",
        "{person} and I went to {value} together, we got back {when}.", "{when} my holiday in {value} came to an end.",
        "I've still got sand in my shoes from {value}, I only returned {when}.",
        "{person} kept me company in {value} until we came home {when}.",
    ),
    third=(
        "{name} got back from {value} {when}.",
        "{when} {name} flew home from {value}, where {he} had been with {person}.",
        "{name} has been to {value}, {he} came back {when}.",
        "{name} and {person} went to {value} together and got back {when}.",
        "{when} {name}'s holiday in {value} came to an end.", "Ask {name} about {value}, {he} returned {when}.",
        "{name} landed here again {when}, after a trip to {value} with {person}.",
        "{name} was in {value} and came home {when}, brown as a nut.",
    ),
    hearsay=(
        "I heard {name} was in {value} and came back {when}.", "Someone said {name} got back from {value} {when}.",
        "Apparently {name} flew home from {value} {when}.", "Wasn't {name} in {value} until {he} came back {when}?",
        "I think {name} returned from {value} {when}.", "If I'm right, {name}'s holiday in {value} ended {when}.",
        "Supposedly {name} landed here {when} after a trip to {value}.",
        "They say {name} went to {value} and got home {when}.",
    ),
    correct=(
        "I said I was in {old}, it was {value}.", "Not {old}, {value}. That's where my holiday was.",
        "I've never set foot in {old}, I came back from {value}.",
        "Sorry, I was booked for {old} years ago, this trip was to {value}.",
        "The trip went to {value}, please forget {old}.", "My suitcase says {value}, only my thumbs said {old}.",
        "I came home from {value} and not from {old}, I'm still jet-lagged.",
        "It was {value} where I went. As for {old}, maybe one day.",
    ),
    prompts=(
        "Have you been away?", "How was your holiday?",
        "Did you go anywhere nice?", "Where did you get that tan?",
    ),
    asks={
        "then": (
            "From which country did {name} come back {when}?", "What country did {name} return from {when}?",
            "From where did {name} get back {when}?", "Which country had {name} been to when {he} came home {when}?",
            "In which country did {name}'s holiday end {when}?", "Where had {name} been on the trip that ended {when}?",
            "From which country did {name} fly home {when}?",
            "What was the destination of the trip {name} returned from {when}?",
        ),
        "when": (
            "When did {name} get back from {value}?", "On what day did {name} come home from {value}?",
            "When did {name} return from {value}?", "What was the date of {name}'s return from {value}?",
            "When did {name} fly home from {value}?", "What day did {name}'s holiday in {value} end?",
            "When was it that {name} came back from {value}?", "On which date was {name} home again from {value}?",
        ),
        "order": (
            "Which country did {name} come back from first, {value} or {other}?",
            "Did {name} go to {value} or to {other} first?",
            "Which trip of {name}'s came first: {value} or {other}?",
            "Where did {name} travel earlier, {value} or {other}?",
            "Of {value} and {other}, which did {name} visit first?",
            "Was it {value} or {other} that {name} went to first?",
            "Between {value} and {other}, where was {name} on holiday earlier?",
            "Which holiday was the earlier one for {name}, that in {value} or that in {other}?",
        ),
        "who": (
            "Who has been to {value}?", "Who travelled to {value}?",
            "Which person went to {value}?", "Who came back from {value}?",
            "Who was on holiday in {value}?", "Whose trip went to {value}?",
            "Who of them has seen {value}?", "Who flew home from {value}?",
        ),
        "with": (
            "With whom did {name} travel to {value}?", "Who went to {value} with {name}?",
            "Who kept {name} company in {value}?", "In whose company was {name} in {value}?",
            "Who was {name}'s companion on the trip to {value}?", "Who did {name} go to {value} with?",
            "Together with whom did {name} visit {value}?", "Who shared the holiday in {value} with {name}?",
        ),
    },
)
_OUTING: Final = Relation(
    name="outing", kind="event", values="places", company=True,
    first=(
        "I went to the {value} {when}.", "{when} {person} and I spent the whole day at the {value}.",
        "I finally made it to the {value} {when}.", "{when} I took {person} to the {value}.",
        "You'd have loved it, I was at the {value} {when}.",
        "I had a day out at the {value} {when}, blisters included.",
        "{person} came along when I visited the {value} {when}.",
        "The {value}, {when}: me, a packed lunch, bliss. {person} was there too.",
    ),
    third=(
        "{name} went to the {value} {when}.", "{when} {name} and {person} spent the whole day at the {value}.",
        "{when} {name} took {person} to the {value}.", "{name} finally made it to the {value} {when}.",
        "{name} had a day out at the {value} {when}.", "{name} visited the {value} {when} and {person} came along.",
        "I've seen the photos: {name} was at the {value} {when}.",
        "{when} it was the {value} for {name}, with a packed lunch.",
    ),
    hearsay=(
        "I heard {name} went to the {value} {when}.", "Someone saw {name} at the {value} {when}, they believe.",
        "Apparently {name} was at the {value} {when}.", "Didn't {name} visit the {value} {when}?",
        "I think {name} had a day out at the {value} {when}.", "Supposedly {when} {name} made it to the {value}.",
        "If the photos are from then, {name} was at the {value} {when}.",
        "They say {name} spent a whole day at the {value}, that was {when}.",
    ),
    correct=(
        "I said I went to the {old}, it was the {value}.", "Not the {old}, the {value}. That's where I was.",
        "The {old} was closed, I ended up at the {value}. I don't know why I wrote it the other way.",
        "Sorry, it was the {value} that I visited and not the {old}.",
        "I mixed up two leaflets, I went to the {value} and never saw the {old}.",
        "My day out was at the {value}, forget the {old}.",
        "What I meant was the {value}. I wrote {old} out of habit.",
        "The {old} is next on my list, I was at the {value}.",
    ),
    prompts=(
        "Did you get out at all?", "What did you do on your day off?",
        "Been on any outings?", "Where were those photos taken?",
    ),
    asks={
        "then": (
            "Where did {name} go for a day out {when}?", "Which place did {name} visit {when}?",
            "What did {name} go to see {when}?", "Where was {name} on {his} outing {when}?",
            "To which place did {name} make an outing {when}?", "Where did {name} spend the day {when}?",
            "What was the destination of {name}'s outing {when}?", "Which sight did {name} go to {when}?",
        ),
        "when": (
            "When did {name} go to the {value}?", "On what day did {name} visit the {value}?",
            "When was {name} at the {value}?", "What was the date of {name}'s outing to the {value}?",
            "When did {name} have a day out at the {value}?", "What day did {name} spend at the {value}?",
            "When was it that {name} went to the {value}?", "On which date did {name} make it to the {value}?",
        ),
        "order": (
            "Which did {name} visit first, the {value} or the {other}?",
            "Did {name} go to the {value} or to the {other} first?",
            "Which outing came first for {name}: the {value} or the {other}?",
            "Where was {name} earlier, at the {value} or at the {other}?",
            "Of the {value} and the {other}, which did {name} see first?",
            "Was it the {value} or the {other} that {name} went to first?",
            "Between the {value} and the {other}, where did {name} go earlier?",
            "Which day out was earlier for {name}, the one at the {value} or the one at the {other}?",
        ),
        "with": (
            "With whom did {name} go to the {value}?", "Who went to the {value} with {name}?",
            "Who came along when {name} visited the {value}?", "In whose company was {name} at the {value}?",
            "Who was {name}'s companion at the {value}?", "Who did {name} visit the {value} with?",
            "Together with whom was {name} at the {value}?", "Who shared the day at the {value} with {name}?",
        ),
    },
)
_PARTY: Final = Relation(
    name="party", kind="event", values="parties", company=True,
    first=(
        "I was at {a_value} {when}, {person} came with me.", "{when} I had a great time at {a_value}.",
        "I went to {a_value} {when}.", "{person} invited me to {a_value} and {when} I went.",
        "My feet hurt, I danced through {a_value} {when}.",
        "{when} there was {a_value}, {person} and I arrived together.",
        "I had to leave early, but I did go to {a_value} {when}.",
        "You missed {a_value}! I was there {when} with {person}.",
    ),
    third=(
        "{name} was at {a_value} {when}, with {person}.", "{when} {name} went to {a_value}.",
        "{person} took {name} along to {a_value} {when}.", "{name} danced through {a_value} {when}.",
        "{when} {name} and {person} were at {a_value}.", "I saw {name} at {a_value} {when}.",
        "{name} had to leave early, but {he} did go to {a_value} {when}.",
        "{when} there was {a_value}, and {name} came with {person}.",
    ),
    hearsay=(
        "I heard {name} was at {a_value} {when}.", "Someone saw {name} at {a_value} {when}, dancing.",
        "Apparently {name} went to {a_value} {when}.", "Wasn't {name} at {a_value} {when}?",
        "I think {name} left {a_value} early, that was {when}.", "They say {when} {name} was at {a_value}.",
        "Supposedly {name} danced all night at {a_value} {when}.",
        "If the pictures don't lie, {name} was at {a_value} {when}.",
    ),
    correct=(
        "I said it was {a_old} I went to, it was {a_value}.", "Not {a_old}, {a_value}. That's the do I was at.",
        "The invitation said {a_value}, I don't know why I wrote {a_old}.",
        "Sorry, I was at {a_value} and not at {a_old}.",
        "It looked like {a_old}, but it was {a_value}, that's where I was.",
        "I went to {a_value}, the {old} is some other time.",
        "Please read {a_value} for {a_old}, I was a bit tired.",
        "Did I write {a_old}? It was {a_value} that I went to.",
    ),
    prompts=(
        "Been to any parties?", "How was your evening out?",
        "Why do your feet hurt?", "Did you go out?",
    ),
    asks={
        "then": (
            "What kind of party was {name} at {when}?", "To what sort of party did {name} go {when}?",
            "Which celebration did {name} go to {when}?", "What was {name} invited to {when}?",
            "What event with friends was {name} at {when}?",
            "What was the occasion when {name} went out celebrating {when}?",
            "What sort of gathering did {name} go to {when}?", "Which social event did {name} attend {when}?",
        ),
        "when": (
            "When was {name} at the {value}?", "On what day did {name} go to the {value}?",
            "When did {name} go to {a_value}?", "What was the date of the {value} that {name} was at?",
            "What day was the {value} that {name} went to?", "When was it that {name} was at {a_value}?",
            "On which date did {name} turn up at the {value}?", "When did the {value} with {name} take place?",
        ),
        "order": (
            "Which did {name} go to first, the {value} or the {other}?",
            "Was {name} at the {value} or at the {other} first?",
            "Which party came first for {name}: the {value} or the {other}?",
            "Where was {name} earlier, at the {value} or at the {other}?",
            "Of the {value} and the {other}, which did {name} go to first?",
            "Was it the {value} or the {other} that {name} was at first?",
            "Between the {value} and the {other}, what did {name} go to earlier?",
            "Which took place earlier with {name} there, the {value} or the {other}?",
        ),
        "with": (
            "With whom was {name} at the {value}?", "Who went to the {value} with {name}?",
            "In whose company was {name} at the {value}?", "Who was {name}'s company at the {value}?",
            "Who was at the {value} together with {name}?", "Alongside whom was {name} at the {value}?",
            "Who else was there when {name} went to the {value}?", "Which person was with {name} at the {value}?",
        ),
    },
)
_RESTAURANT: Final = Relation(
    name="restaurant", kind="event", values="restaurants", company=True,
    first=(
        "I ate at {value} {when}.", "{when} {person} and I had dinner at {value}.",
        "We tried {value} {when}, {person} and me.", "I had the best meal in months {when}, at {value}.",
        "{person} took me out to {value} {when}.", "{when} I finally got a table at {value}.",
        "{value} is worth the money, I ate there {when}.",
        "I ate too much at {value} {when}, and {person} had to roll me home.",
    ),
    third=(
        "{name} ate at {value} {when}.", "{when} {name} and {person} had dinner at {value}.",
        "{name} tried {value} {when}, and {person} came along.",
        "{name} had the best meal in months {when}, at {value}.",
        "{person} took {name} out to {value} {when}.", "{when} {name} finally got a table at {value}.",
        "Ask {name} about {value}, {he} ate there {when}.",
        "{name} had dinner at {value} {when} and still talks about it.",
    ),
    hearsay=(
        "I heard {name} ate at {value} {when}.", "Someone saw {name} at {value} {when}, behind a menu.",
        "Apparently {name} had dinner at {value} {when}.", "Didn't {name} get a table at {value} {when}?",
        "I think {name} tried {value} {when}.", "They say {name} went out to {value} {when}.",
        "Supposedly {when} {name} was at {value}.", "If I'm not mixing it up, {when} {name} ate at {value}.",
    ),
    correct=(
        "I said I ate at {old}, it was {value}.", "Not {old}, {value}. That's where we ate.",
        "I mixed up the menus, dinner was at {value} and not at {old}.", "Sorry, {old} was full, I ate at {value}.",
        "It was {value} where I had dinner. I've never been inside {old}.",
        "The bill says {value}. Please forget {old}.",
        "Wrong restaurant! I was at {value}, I walked past {old}.", "Did I write {old}? My table was at {value}.",
    ),
    prompts=(
        "Been out to eat?", "Had any good meals?",
        "Where did you have dinner?", "Any restaurant tips?",
    ),
    asks={
        "then": (
            "At which restaurant did {name} eat {when}?", "Where did {name} have dinner {when}?",
            "Which restaurant did {name} try {when}?", "At what place did {name} get a table {when}?",
            "Where did {name} go out to eat {when}?", "What restaurant was {name} at {when}?",
            "Which restaurant fed {name} {when}?", "Whose menu did {name} order from {when}?",
        ),
        "when": (
            "When did {name} eat at {value}?", "On what day did {name} have dinner at {value}?",
            "When did {name} try {value}?", "What was the date of {name}'s meal at {value}?",
            "When did {name} get a table at {value}?", "What day did {name} go out to {value}?",
            "When was it that {name} ate at {value}?", "On which date was {name} at {value}?",
        ),
        "order": (
            "Which restaurant did {name} go to first, {value} or {other}?",
            "Did {name} eat at {value} or at {other} first?",
            "Which meal out came first for {name}: {value} or {other}?",
            "Where did {name} have dinner earlier, at {value} or at {other}?",
            "Of {value} and {other}, which did {name} try first?",
            "Was it {value} or {other} that {name} ate at first?",
            "Between {value} and {other}, where was {name} earlier?",
            "At which did {name} get a table first, {value} or {other}?",
        ),
        "with": (
            "With whom did {name} eat at {value}?", "Who had dinner at {value} with {name}?",
            "Who came along when {name} tried {value}?", "In whose company was {name} at {value}?",
            "Who shared a table with {name} at {value}?", "Who did {name} go to {value} with?",
            "Together with whom did {name} have a meal at {value}?", "Who sat across from {name} at {value}?",
        ),
    },
)
_TRAVEL_MISHAP: Final = Relation(
    name="travel_mishap", kind="cause", values="", tone="bad",
    pairs=(
        ("missed {his} flight", "{he} had read the gate number upside down"),
        ("slept at the airport", "the last shuttle had left early"),
        ("took a taxi for two hundred miles", "all trains were on strike"),
        ("arrived without any luggage", "the labels had been swapped at check-in"),
        ("got off at the wrong station", "{he} was deep in a crossword"),
        ("drove in circles for an hour", "the satnav was set to avoid left turns"),
        ("was stopped at the border", "{his} visa had the wrong birthday on it"),
        ("walked the last five miles", "the rental car had run out of petrol"),
        ("lost {his} hotel room", "the booking was for the same day next year"),
        ("came home two days early", "a storm was heading for the coast"),
        ("spent the night in a monastery", "the mountain road was blocked by a landslide"),
        ("paid a fine on the tram", "{he} had stamped the ticket on the wrong side"),
        ("got soaked to the skin", "the ferry had no roof"),
        ("was upgraded to first class", "{his} seat had a broken belt"),
    ),
    first=(
        "I {value} {when}.", "{when} I {value}. Typical.",
        "My journey was a comedy, I {value}.", "You'd have laughed, I {value} {when}.",
        "Travelling and me! I {value}.", "I haven't told you yet: I {value}.",
        "It could only happen to me. {when} I {value}.", "So there I was, and I {value}.",
    ),
    third=(
        "{name} {value} {when}.", "{when} {name} {value}. Typical.",
        "{name}'s journey was a comedy, {he} {value}.", "Did you hear about {name}? {he} {value} {when}.",
        "It could only happen to {name}, {he} {value}.", "I had {name} on the phone: {he} {value}.",
        "You know {name} and travelling. {he} {value} {when}.", "Poor {name} {value}.",
    ),
    reason=(
        "It was because {cause}.", "And why? Because {cause}.",
        "The explanation is simple, {cause}.", "It all started like this: {cause}.",
        "Nobody's fault really, {cause}.", "I only found out later that {cause}, that's what did it.",
        "I {value} because {cause}.", "The reason was that {cause}.",
    ),
    prompts=(
        "How was the journey?", "Did you get there all right?",
        "How was the trip?", "Any travel disasters?",
    ),
    asks={
        "why": (
            "Why is it that {name} {value}?", "What was the reason that {name} {value}?",
            "How come {name} {value}?", "What had happened, so that {name} {value}?",
            "What explains that {name} {value}?", "For what reason is it that {name} {value}?",
            "What led to it that {name} {value}?", "What brought it about that {name} {value}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _TRIP,
    _OUTING,
    _PARTY,
    _RESTAURANT,
    _TRAVEL_MISHAP,
)
"""Trips, outings and evenings out."""
