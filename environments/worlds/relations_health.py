"""Illness, injury and those who mend them."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_INJURY: Final = Relation(
    name="injury", kind="event", values="injuries", tone="bad",
    first=(
        "I ended up with {a_value} {when}.", "{when} I fell and got {a_value}.",
        "I've got {a_value}, it happened {when}.", "Don't laugh, but I gave myself {a_value} {when}.",
        "The hospital sent me home with {a_value} {when}.",
        "It was a silly accident {when} and I came away with {a_value}.",
        "{when} I missed a step. Result: {a_value}.", "I'm typing slowly because I got {a_value} {when}.",
    ),
    third=(
        "{name} ended up with {a_value} {when}.", "{when} {name} fell and got {a_value}.",
        "Poor {name} has {a_value}, it happened {when}.",
        "{name} had a silly accident {when} and came away with {a_value}.",
        "The hospital sent {name} home with {a_value} {when}.",
        "{when} {name} missed a step, and the result was {a_value}.",
        "{name} got {a_value} {when}, and is being brave about it.",
        "I drove {name} to the doctor {when}, it turned out to be {a_value}.",
    ),
    hearsay=(
        "I heard {name} ended up with {a_value} {when}.", "Somebody said that {when} {name} got {a_value}.",
        "Apparently {name} had an accident {when} and has {a_value} now.",
        "Didn't {name} come away with {a_value} {when}?",
        "I think {name} was hurt {when}, {a_value} if I remember right.",
        "They say {name} got {a_value} {when}, though maybe it's less bad.",
        "Supposedly {when} {name} fell and the result was {a_value}.",
        "The story goes that {name} managed to get {a_value} {when}.",
    ),
    correct=(
        "I said I'd got {a_old}, the doctor says it's {a_value}.", "Not {a_old}, it was {a_value} that I got.",
        "I got my diagnoses mixed up, it's {a_value} and not {a_old}.",
        "Sorry, when I wrote {a_old} I meant {a_value}.",
        "It turns out that I never had {a_old}. It was {a_value} all along.",
        "Scrap the {a_old}, what I got was {a_value}.",
        "For the record: no {a_old} for me, just {a_value}.", "The X-ray is back, it isn't {a_old}, it's {a_value}.",
    ),
    prompts=(
        "Have you been looking after yourself?", "What happened to you?",
        "Is that a bandage I can see?", "Any accidents lately?",
    ),
    asks={
        "then": (
            "What injury did {name} get {when}?", "How was {name} hurt {when}?",
            "With what did {name} end up {when}?", "What did {name} come away with after the accident {when}?",
            "What happened to {name}'s body {when}?", "Which injury did {name} suffer {when}?",
            "What did the doctor find on {name} {when}?",
            "What had {name} done to {him}self when {he} got hurt {when}?",
        ),
        "when": (
            "When did {name} get {his} {value}?", "On what day did {name} end up with {a_value}?",
            "When did the accident happen that left {name} with {a_value}?",
            "What was the date on which {name} got {a_value}?",
            "When did {name} suffer {a_value}?", "What day did {name} come away with {a_value}?",
            "Since when did {name} have {a_value}?", "When was it that {name} got hurt and had {a_value}?",
        ),
        "order": (
            "Which injury did {name} get first, the {value} or the {other}?",
            "Did {name} have the {value} or the {other} first?",
            "Which came first for {name}: the {value} or the {other}?",
            "What happened to {name} earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} suffer first?",
            "Was it the {value} or the {other} that {name} got first?",
            "Between {name}'s {value} and {his} {other}, which was earlier?",
            "Looking back, which injury came earlier for {name}, the {value} or the {other}?",
        ),
    },
)
_ILLNESS: Final = Relation(
    name="illness", kind="event", values="illnesses", tone="bad",
    first=(
        "I came down with {value} {when}.", "{when} I was diagnosed with {value}.",
        "I've been flat on my back, it was {value}, it started {when}.",
        "The doctor told me {when} that I have {value}.",
        "It's {value}. I found out {when}.", "I caught {value} {when} and felt like a wet towel.",
        "{when} it hit me: {value}, of all things.", "My week was cancelled, I went down with {value} {when}.",
    ),
    third=(
        "{name} came down with {value} {when}.", "{when} {name} was diagnosed with {value}.",
        "Poor {name}, {he} caught {value} {when}.", "The doctor told {name} {when} that it was {value}.",
        "{name} had to cancel everything, {he} went down with {value} {when}.",
        "{when} it was {name}'s turn to be ill: {value}.",
        "{name} is resting, it's {value}, it began {when}.",
        "I brought soup to {name}, {he} came down with {value} {when}.",
    ),
    hearsay=(
        "I heard {name} came down with {value} {when}.", "Someone said {when} {name} was diagnosed with {value}.",
        "Apparently it was {value} that {name} caught {when}.", "Didn't {name} go down with {value} {when}?",
        "I believe {name} has been ill, {value} by the sound of it, since it hit {him} {when}.",
        "They say {name} got {value} {when}.",
        "If I'm informed correctly, {name} caught {value} {when}.",
        "Supposedly {when} the doctor told {name} it was {value}.",
    ),
    correct=(
        "I said it was {old}, the doctor now says {value}.", "Not {old}, {value}. That's what I had.",
        "I got the name wrong, it was {value} I came down with and not {old}.",
        "Forget {old}, the test came back and it was {value}.",
        "What I caught was {value}, I'd only looked up {old}.",
        "It was never {old}. It was {value}, I read the note properly now.",
        "Sorry for the scare about {old}, it was {value}.", "I mixed up two long words, I had {value} and not {old}.",
    ),
    prompts=(
        "Are you feeling all right?", "How's your health?",
        "Why have you been so quiet?", "Were you ill?",
    ),
    asks={
        "then": (
            "What did {name} come down with {when}?", "Which illness did {name} catch {when}?",
            "What was {name} diagnosed with {when}?", "What was wrong with {name} {when}?",
            "Which illness hit {name} {when}?", "What did the doctor tell {name} {he} had {when}?",
            "From what did {name} fall ill {when}?", "What was the matter with {name}'s health {when}?",
        ),
        "when": (
            "When did {name} come down with {value}?", "On what day was {name} diagnosed with {value}?",
            "When did {name} catch {value}?", "What was the date on which {name} fell ill with {value}?",
            "When did {name} go down with {value}?", "What day did {value} hit {name}?",
            "When was it that {name} got {value}?", "When did the doctor find {value} in {name}?",
        ),
        "order": (
            "Which did {name} have first, {value} or {other}?", "Did {name} come down with {value} or {other} first?",
            "Which illness came first for {name}: {value} or {other}?",
            "What did {name} catch earlier, {value} or {other}?",
            "Of {value} and {other}, which hit {name} first?", "Was it {value} or {other} that {name} had first?",
            "With what was {name} diagnosed first, {value} or {other}?",
            "Between {value} and {other}, which did {name} go down with earlier?",
        ),
    },
)
_APPOINTMENT: Final = Relation(
    name="appointment", kind="plan", values="appointments",
    first=(
        "I've got an appointment with the {value} {when}.", "{when} I'm seeing the {value}.",
        "I'm booked in with the {value} {when}.", "The {value} can see me {when}.",
        "Don't let me forget, I'm due at the {value} {when}.", "I finally rang and got a slot with the {value} {when}.",
        "{when} it's the {value} for me, wish me luck.", "My appointment with the {value} is {when}.",
    ),
    third=(
        "{name} has an appointment with the {value} {when}.", "{when} {name} is seeing the {value}.",
        "{name} is booked in with the {value} {when}.", "The {value} can see {name} {when}.",
        "{name} asked me to remind {him}, the appointment with the {value} is {when}.",
        "{name} got a slot with the {value} {when}.",
        "{when} it's the {value} for {name}.", "{name} is due at the {value} {when}.",
    ),
    done=(
        "I saw the {value}, all fine.", "I've been to the {value} as planned.",
        "The appointment with the {value} is over and done with.",
        "I sat in the waiting room for an hour, but I've seen the {value}.",
        "I kept my appointment with the {value}.", "The {value} had a good look at me, so that's done.",
        "Back from the {value}, in one piece.", "You can stop reminding me, I went to the {value}.",
    ),
    cancelled=(
        "I cancelled the appointment with the {value}.", "The {value} is on holiday, so my appointment was called off.",
        "I never turned up at the {value}.", "I never made it to the {value}, I called it off.",
        "My appointment with the {value} won't happen, they closed the practice.", "The {value} rang to cancel on me.",
        "I chickened out of seeing the {value}.", "No {value} for me, the appointment is off.",
    ),
    moved=(
        "The {value} moved my appointment, it's {when} now.", "I had to shift the {value}, new date: {when}.",
        "My appointment with the {value} will be {when} instead.",
        "They rang from the {value}, I'm to come {when} now.",
        "It's {when} now that I see the {value}.", "New slot with the {value}: {when}.",
        "The {value} was fully booked, so I've been moved, it'll be {when}.",
        "I asked the {value} for another day and got one, {when}.",
    ),
    prompts=(
        "Have you got any appointments coming up?", "Did you ever sort out that appointment?",
        "Anything on the calendar, healthwise?", "Are you looking after yourself?",
    ),
    asks={
        "when": (
            "When is {name}'s appointment with the {value} meant to be?", "On what day is {name} to see the {value}?",
            "For which date is {name} booked in with the {value}?", "When is {name} due at the {value}?",
            "What is the date of {name}'s appointment with the {value}?",
            "What day has {name} got a slot with the {value}?",
            "When is {name} supposed to visit the {value}?", "On which day does the {value} expect {name}?",
        ),
        "outcome": (
            "Did {name} see the {value}?", "Did {name} go to the {value} in the end?",
            "Did {name}'s appointment with the {value} take place?", "Has {name} been to the {value}?",
            "Was {name} seen by the {value}?", "Did the visit to the {value} happen for {name}?",
            "Did {name} keep the appointment with the {value}?",
            "Has {name} had the planned appointment with the {value}?",
        ),
    },
)
_BAD_TURN: Final = Relation(
    name="bad_turn", kind="cause", values="", tone="bad",
    pairs=(
        ("couldn't sleep for three nights", "the neighbours were drilling until dawn"),
        ("fainted at the supermarket", "{he} had skipped breakfast and lunch"),
        ("lost {his} voice", "{he} had shouted all through the final"),
        ("walked with a stick for a week", "{his} new boots had rubbed {his} heel raw"),
        ("spent the night in casualty", "a fishbone had stuck in {his} throat"),
        ("went to bed at seven", "the time difference had caught up with {him}"),
        ("cried on the bus", "a stranger had sung {his} grandmother's favourite song"),
        ("came out in a rash", "{he} had changed the washing powder"),
        ("stayed in bed for two days", "{he} had carried a piano up the stairs"),
        ("had to wear sunglasses indoors", "the eye drops had made everything too bright"),
        ("gave up coffee", "{his} hands had started to shake"),
        ("slept on the floor", "the bed frame had snapped"),
        ("had a splitting headache", "{he} had worn somebody else's glasses all morning"),
        ("missed the pool party", "{he} had a bad sunburn"),
    ),
    first=(
        "I {value} {when}.", "{when} I {value}, and I'm still not myself.",
        "You'll have noticed, I {value}.", "I'm a bit ashamed to say that I {value}.",
        "It wasn't my finest hour, I {value} {when}.", "I don't talk about it much, but I {value}.",
        "Well, {when} I {value}.", "Not to worry you, but I {value}.",
    ),
    third=(
        "{name} {value} {when}.", "{when} {name} {value}, the poor thing.",
        "Did {name} tell you? {he} {value}.", "{name} isn't quite {him}self, {he} {value} {when}.",
        "I was worried, because {name} {value}.", "Just so you know, {name} {value}.",
        "It wasn't {name}'s finest hour, {he} {value} {when}.", "Things haven't been easy for {name}, {he} {value}.",
    ),
    reason=(
        "It was because {cause}.", "The trouble was that {cause}.",
        "I know why, too: {cause}.", "All because {cause}, would you believe.",
        "The cause of it: {cause}.", "It happened because {cause}.",
        "Why I {value}? Because {cause}.", "Looking back, the reason is clear, {cause}.",
    ),
    prompts=(
        "How have you been feeling?", "Are you okay?",
        "You look tired, what's up?", "What's been going on with you?",
    ),
    asks={
        "why": (
            "Why is it that {name} {value}?", "What was the reason that {name} {value}?",
            "How come {name} {value}?", "What was the cause when {name} {value}?",
            "What had happened, so that {name} {value}?", "What explains that {name} {value}?",
            "For what reason is it that {name} {value}?", "What brought it about that {name} {value}?",
        ),
    },
)
_ALLERGIES: Final = Relation(
    name="allergies", kind="set", values="allergens", tone="bad",
    first=(
        "I'm allergic to {value}.", "The doctor says I have an allergy to {value}.",
        "Keep {value} away from me, I'm allergic.", "Turns out that I can't be near {value}, it's an allergy.",
        "{when} I found out that I'm allergic to {value}.", "My face swelled up {when}, I'm allergic to {value}.",
        "They tested me: an allergy to {value}.", "I carry tablets because of my allergy to {value}.",
    ),
    third=(
        "{name} is allergic to {value}.", "{name} has an allergy to {value}.",
        "Keep {value} away from {name}, {he} is allergic.", "{when} {name} found out that {he} is allergic to {value}.",
        "Careful when you have {name} round, {value} makes {him} ill. It's an allergy.",
        "The doctors found an allergy to {value} in {name}.",
        "{name}'s face swelled up {when}, because of an allergy to {value}.",
        "{name} carries tablets because {he} is allergic to {value}.",
    ),
    hearsay=(
        "I think {name} is allergic to {value}.", "Didn't someone say {name} has an allergy to {value}?",
        "I heard that {value} is dangerous for {name}.", "Supposedly {name} can't be near {value}.",
        "If I remember right, it's {value} that {name} is allergic to.",
        "Apparently {name} swells up because of {value}.",
        "They say {name} carries tablets for an allergy to {value}.",
        "Check with {name}, but I believe {he} is allergic to {value}.",
    ),
    remove=(
        "The allergy to {value} is gone, they tested me again.", "I'm not allergic to {value} any more.",
        "Good news: I've outgrown my allergy to {value}.", "They treated my allergy to {value} and it worked.",
        "{value} doesn't bother me now, the allergy has gone.", "The new test says I no longer react to {value}.",
        "After all those injections I'm fine with {value}.", "My doctor took {value} off the list of my allergies.",
    ),
    remove_third=(
        "{name} isn't allergic to {value} any more.", "{name}'s allergy to {value} is gone.",
        "{name} has outgrown the allergy to {value}.", "The treatment worked, {name} no longer reacts to {value}.",
        "{value} doesn't bother {name} now, the allergy has gone.", "{name} was tested again and is fine with {value}.",
        "They took {value} off the list of {name}'s allergies.", "After the injections {name} can cope with {value}.",
    ),
    prompts=(
        "Is there anything you can't have?", "Any allergies I should know about?",
        "How was the allergy test?", "Why are you carrying tablets?",
    ),
    asks={
        "now": (
            "What is {name} allergic to now?", "Which allergies does {name} have at present?",
            "To what does {name} react these days?", "What must be kept away from {name}?",
            "Name everything that {name} is allergic to now.",
            "What is on the list of {name}'s allergies at the moment?",
            "What should a host of {name} be careful with because of an allergy?",
            "Which substances is {name} allergic to today?",
        ),
        "count": (
            "How many allergies does {name} have now?", "To how many things is {name} allergic at present?",
            "What is the number of {name}'s allergies?", "How many things make {name} ill because of an allergy?",
            "How many entries are on {name}'s list of allergies now?", "How many allergies has {name} still got?",
            "How many things does {name} react to these days?",
            "Counting them all, to how many things is {name} allergic?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _INJURY,
    _ILLNESS,
    _APPOINTMENT,
    _BAD_TURN,
    _ALLERGIES,
)
"""Illness, injury and those who mend them."""
