"""Plans that come true, fall through or are put off."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_TRIP_PLAN: Final = Relation(
    name="trip_plan", kind="plan", values="countries",
    first=(
        "I'm flying to {value} {when}.", "{when} I'm off to {value}!",
        "My tickets are booked, {value}, here I come {when}.", "I've got a trip to {value} planned, leaving {when}.",
        "The suitcase is out: I leave for {value} {when}.", "{when} it's finally happening, I'm going to {value}.",
        "I'm taking a holiday in {value}, starting {when}.", "I can't wait, my plane to {value} goes {when}.",
    ),
    third=(
        "{name} is flying to {value} {when}.", "{when} {name} is off to {value}.",
        "{name}'s tickets are booked, {he} leaves for {value} {when}.",
        "{name} has a trip to {value} planned for the near future, starting {when}.",
        "{name} is counting the days, {he} goes to {value} {when}.",
        "{when} it's finally happening, {name} is going to {value}.",
        "If all goes well, {name} sets off for {value} {when}.",
        "{name} is taking a holiday in {value}, starting {when}.",
    ),
    done=(
        "I went to {value} as planned.", "The trip to {value} happened, and it was glorious.",
        "I made it to {value} and back, all on schedule.", "So I did go to {value}, every photo is of food.",
        "{value} was worth all the planning, I've been there now.",
        "I've ticked off {value}, the holiday went just as I'd hoped.",
        "I got on that plane to {value} after all the fuss.", "The journey to {value} is behind me, I loved it.",
    ),
    cancelled=(
        "I'm not going to {value}, it's off.", "The trip to {value} was cancelled.",
        "I had to drop my holiday in {value}.", "No {value} for me, the flight was scrapped.",
        "I gave back the tickets to {value}.", "My journey to {value} isn't happening, no money left.",
        "I stayed at home instead of going to {value}.", "I've called off {value}, it was all too much.",
    ),
    moved=(
        "I've moved my trip to {value}, I leave {when} now.", "The flight to {value} was changed, it goes {when} now.",
        "New date for {value}: {when}.", "My holiday in {value} starts {when} instead.",
        "I had to rebook, so it's {value} {when} now.", "They shifted my plane to {value}, I fly {when} now.",
        "{value} has to wait a bit, I'm going {when} instead.", "It's {when} now that I set off for {value}.",
    ),
    prompts=(
        "Have you got any travel plans?", "What about that holiday of yours?",
        "Are you going away?", "What's with the suitcase?",
    ),
    asks={
        "when": (
            "When is {name}'s trip to {value} meant to start?", "On what day does {name} leave for {value}?",
            "For which date is {name}'s trip to {value} planned?", "When is {name} to fly to {value}?",
            "What is the date of {name}'s departure for {value}?",
            "What day is planned for {name}'s journey to {value}?",
            "When is {name} supposed to set off for {value}?", "On which day should {name}'s holiday in {value} begin?",
        ),
        "outcome": (
            "Did {name} go to {value} as planned?", "Did {name}'s trip to {value} happen?",
            "Has {name} been on the planned trip to {value}?", "Did the holiday in {value} come about for {name}?",
            "Did {name} really travel to {value}?", "Did {name} make it to {value}?",
            "Did {name}'s plan to go to {value} work out?", "Did {name} get on the plane to {value}?",
        ),
    },
)
_CONCERT_PLAN: Final = Relation(
    name="concert_plan", kind="plan", values="bands",
    first=(
        "I've got a ticket for {value} {when}.", "{when} I'm going to hear {value}.",
        "{value} are playing and I'll be there {when}.",
        "I queued for two hours for a ticket to the {value} gig {when}.",
        "Keep the evening free of phone calls, {when} I'm at {value}.", "I'm going to the {value} concert {when}.",
        "Finally! {value}, live, {when}, and I've got a seat.",
        "{when} it's me and the speakers, I'm off to see {value}.",
    ),
    third=(
        "{name} has a ticket for {value} {when}.", "{when} {name} is going to hear {value}.",
        "{value} are playing, and {name} will be there {when}.",
        "{name} queued for hours for a ticket to the {value} gig {when}.",
        "{name} is going to the {value} concert {when}.",
        "Don't plan anything with {name}, {when} {he} is off to see {value}.",
        "{name} got a seat for {value} {when}.", "{name} can't wait to hear {value} {when}.",
    ),
    done=(
        "I went to the {value} concert as planned.", "I heard {value}, what a night.",
        "So I used my ticket for {value}, it was loud.", "The {value} gig happened and I was in the middle of it.",
        "I saw {value} play, just as I'd hoped.", "{value} were brilliant, I made it in time.",
        "My evening with {value} is over, I still hum.", "I did get to the {value} gig in the end.",
    ),
    cancelled=(
        "The {value} concert was cancelled.", "I sold my ticket for {value}.",
        "I'm not going to see {value} after all.", "{value} called off the show.",
        "No {value} for me, the singer has a sore throat.", "I gave the {value} ticket back.",
        "My evening with {value} fell through.", "The {value} gig went ahead without me, I was stuck at work.",
    ),
    moved=(
        "The {value} concert was moved, it's {when} now.", "{value} put the show back, I'm going {when} now.",
        "New date for the {value} gig: {when}.", "My ticket for {value} is good for {when} now.",
        "They've shifted {value}, so I'll hear them {when} instead.",
        "It's {when} now that {value} are playing for me.",
        "The {value} evening will be {when} instead.", "I swapped my seat, so I see {value} {when} now.",
    ),
    prompts=(
        "Are you going to any gigs?", "What about that concert?",
        "Any music on the horizon?", "Did you ever use that ticket?",
    ),
    asks={
        "when": (
            "When is {name} meant to see {value}?", "On what day is the {value} concert that {name} has a ticket for?",
            "For which date is {name}'s ticket for {value}?", "When is {name} to hear {value}?",
            "What is the date of {name}'s evening with {value}?",
            "What day is {name} supposed to go to the {value} gig?",
            "When does {name} plan to see {value} play?", "On which day does {name} have a seat for {value}?",
        ),
        "outcome": (
            "Did {name} go to the {value} concert as planned?", "Did {name} hear {value} with that ticket?",
            "Has {name} been to the {value} gig {he} planned to go to?", "Did {name}'s evening with {value} happen?",
            "Did {name} use the ticket for {value}?", "Did {name} make it to the {value} concert {he} had planned?",
            "Did {name}'s plan to see {value} work out?", "Was {name} there when {value} played, as planned?",
        ),
    },
)
_REDECORATE: Final = Relation(
    name="redecorate", kind="plan", values="rooms",
    first=(
        "I'm painting the {value} {when}.", "{when} I'm going to redo the {value}.",
        "The paint is bought, the {value} gets its turn {when}.",
        "I've set aside a day for the {value}, I'm redecorating it {when}.",
        "I can't look at the {value} any longer, {when} I start on it with a brush.",
        "Do you own a long brush? I'm doing up the {value} {when}.",
        "{when} the wallpaper in the {value} comes off.", "I've decided to give the {value} a makeover {when}.",
    ),
    third=(
        "{name} is painting the {value} {when}.", "{when} {name} is going to redo the {value}.",
        "{name} has bought the paint, the {value} gets its turn {when}.",
        "{name} wants to redecorate the {value} {when}.",
        "Has {name} asked you for a brush too? {he} is doing up the {value} {when}.",
        "{when} the wallpaper in {name}'s {value} comes off.",
        "{name} can't look at the {value} any longer and will paint it {when}.",
        "{name} is giving the {value} a makeover {when}.",
    ),
    done=(
        "I've painted the {value}, paint in my ears included.", "The {value} is done, it looks like new.",
        "I redid the {value} just as planned.", "You wouldn't recognise the {value}, I finished redecorating.",
        "So I did do up the {value} and my back knows it.", "The {value} has new walls, I managed it.",
        "The makeover of the {value} is complete.", "I got the {value} done, come and admire it.",
    ),
    cancelled=(
        "I'm not painting the {value} after all.", "The {value} stays as it is, I gave up the idea.",
        "The landlord won't let me redo the {value}.", "I dropped the plan for the {value}.",
        "No makeover for the {value}, I ran out of money.", "I took the paint for the {value} back to the shop.",
        "Doing up the {value} isn't going to happen.", "The {value} won't be redecorated, I lost heart.",
    ),
    moved=(
        "I'll be painting the {value} {when} instead.", "The {value} has to wait, I'm doing it {when} now.",
        "New date for the {value} makeover: {when}.", "It's {when} now that I redo the {value}.",
        "The paint is late, so the {value} gets done {when} now.",
        "I've moved the {value} business, it'll be {when} now.",
        "My helper cancelled, I'm redecorating the {value} {when} instead.",
        "I've put off the {value}, I'll do it {when}.",
    ),
    prompts=(
        "What are you doing around the house?", "How's the decorating?",
        "Any plans for your place?", "Is that paint on your nose?",
    ),
    asks={
        "when": (
            "When does {name} plan to paint the {value}?", "On what day is {name} to redo the {value}?",
            "For which date is the makeover of {name}'s {value} planned?", "When is {name} meant to do up the {value}?",
            "What is the date on which {name} wants to redecorate the {value}?",
            "What day has {name} set aside for the {value}?",
            "When is {name} supposed to paint the {value}?", "On which day should {name}'s {value} get its new look?",
        ),
        "outcome": (
            "Did {name} paint the {value} as planned?", "Did {name} redo the {value}?",
            "Has {name} redecorated the {value}?", "Did the makeover of {name}'s {value} happen?",
            "Did {name} do up the {value} in the end?", "Did {name}'s plan for the {value} work out?",
            "Did {name}'s {value} get new paint?", "Has {name}'s {value} been done up?",
        ),
    },
)
_DINNER_PLAN: Final = Relation(
    name="dinner_plan", kind="plan", values="dishes",
    first=(
        "I'm cooking {value} for friends {when}.", "{when} there's {value} at mine, for the whole gang.",
        "I've invited everybody for {value} {when}.", "Bring wine {when}, I'm making a mountain of {value}.",
        "I'm having people over for {value} {when}.", "{when} I'm going to try my hand at {value}, with guests.",
        "The shopping list is written, I'm serving {value} {when}.",
        "I promised the neighbours {value}, so {when} I cook.",
    ),
    third=(
        "{name} is cooking {value} for friends {when}.", "{when} there's {value} at {name}'s.",
        "{name} has invited everybody for {value} {when}.", "{name} is having people over for {value} {when}.",
        "{when} {name} is going to try {his} hand at {value}, with guests.",
        "{name} promised the neighbours {value}, {he} cooks it {when}.",
        "Come hungry, {name} is serving {value} {when}.", "{name} is planning a dinner with {value} {when}.",
    ),
    done=(
        "I cooked {value} for everybody, the pot was empty in minutes.", "The dinner happened, {value} and all.",
        "I served my {value} and nobody fell ill.", "So we had {value} at mine, just as planned.",
        "My guests loved the {value}.", "The {value} evening was a success.",
        "I managed the {value}, they even licked the spoons.", "I made {value} for the gang as promised.",
    ),
    cancelled=(
        "I called off the dinner with {value}.", "There won't be any {value} at mine, the oven gave up.",
        "I had to tell everybody that the {value} evening is off.",
        "I didn't cook {value} after all, half of them were ill.",
        "The {value} dinner was cancelled.", "No {value} for the gang, I couldn't get the ingredients.",
        "I dropped the idea of cooking {value}.", "My dinner with {value} never took place.",
    ),
    moved=(
        "I moved the {value} dinner, it's {when} now.", "We're having {value} {when} instead.",
        "New date for my {value} evening: {when}.", "I can't cook earlier, so there's {value} {when} now.",
        "The {value} has to wait, I'm making it {when} instead.",
        "The guests asked for another day, {value} is {when} now.",
        "It's {when} now that I serve {value}.", "I put the {value} dinner back, come {when}.",
    ),
    prompts=(
        "Are you having people over?", "What about that dinner of yours?",
        "Are you cooking anything?", "When do I get to eat at yours?",
    ),
    asks={
        "when": (
            "When is {name} meant to cook {value} for {his} guests?",
            "On what day does {name} plan the dinner with {value}?",
            "For which date has {name} invited people for {value}?", "When is {name} to serve {value}?",
            "What is the date of {name}'s dinner with {value}?", "What day is planned for {name}'s {value} evening?",
            "When is {name} supposed to have people over for {value}?",
            "On which day should there be {value} at {name}'s?",
        ),
        "outcome": (
            "Did {name} cook {value} for {his} guests as planned?", "Did {name}'s dinner with {value} happen?",
            "Has {name} had people over for {value}?", "Did the {value} evening at {name}'s take place?",
            "Did {name} serve {value} in the end?", "Did {name}'s plan to cook {value} work out?",
            "Was there {value} at {name}'s as planned?", "Did the guests get their {value} from {name}?",
        ),
    },
)
_OUTING_PLAN: Final = Relation(
    name="outing_plan", kind="plan", values="places",
    first=(
        "I'm going to the {value} {when}.", "{when} I'm off to the {value} with a packed lunch.",
        "I've booked a ticket for the {value} {when}.", "If the weather holds, I'm visiting the {value} {when}.",
        "I've been meaning to see the {value} for years and {when} I will.",
        "My next day out is {when}, at the {value}.",
        "I've promised myself a visit to the {value} {when}.", "{when} you can find me at the {value}.",
    ),
    third=(
        "{name} is going to the {value} {when}.", "{when} {name} is off to the {value} with a packed lunch.",
        "{name} has booked a ticket for the {value} {when}.",
        "If the weather holds, {name} is visiting the {value} {when}.",
        "{name}'s next day out is {when}, at the {value}.",
        "{name} has wanted to see the {value} for years and {when} {he} will.",
        "{when} you can find {name} at the {value}.", "{name} is planning a visit to the {value} {when}.",
    ),
    done=(
        "I went to the {value} just as I'd planned.", "The visit to the {value} happened, my feet hurt.",
        "I finally saw the {value}, it was worth the wait.", "So I did get to the {value}.",
        "My day at the {value} was lovely.", "I've ticked the {value} off my list.",
        "The weather held, so I was at the {value}.", "I used my ticket for the {value}.",
    ),
    cancelled=(
        "I didn't go to the {value} after all.", "The {value} was closed, so that's off.",
        "I had to drop the visit to the {value}.", "No {value} for me, I overslept and gave up.",
        "I returned my ticket for the {value}.", "My day at the {value} fell through.",
        "It rained too hard, I called off the {value}.", "The outing to the {value} isn't happening.",
    ),
    moved=(
        "I'm going to the {value} {when} instead.", "I moved the visit to the {value}, it's {when} now.",
        "New date for the {value}: {when}.", "The {value} has to wait, I'll see it {when}.",
        "It's {when} now that I go to the {value}.", "I changed my ticket, so the {value} is {when} now.",
        "They're repairing something at the {value}, I go {when} instead.",
        "I put off my day at the {value}, it'll be {when}.",
    ),
    prompts=(
        "Any outings planned?", "What are you doing on your next day off?",
        "What about that day out?", "Are you going to get out a bit?",
    ),
    asks={
        "when": (
            "When is {name} meant to visit the {value}?", "On what day does {name} plan to go to the {value}?",
            "For which date is {name}'s ticket to the {value}?", "When is {name} to see the {value}?",
            "What is the date of {name}'s planned visit to the {value}?",
            "What day is set for {name}'s day out at the {value}?",
            "When is {name} supposed to go to the {value}?", "On which day should {name} be at the {value}?",
        ),
        "outcome": (
            "Did {name} go to the {value} as planned?", "Did {name}'s visit to the {value} happen?",
            "Has {name} been on the planned outing to the {value}?", "Did {name} get to the {value} in the end?",
            "Did {name} use the ticket for the {value}?", "Did {name}'s plan to see the {value} work out?",
            "Did the day out at the {value} come about for {name}?",
            "Did {name} make the planned visit to the {value}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _TRIP_PLAN,
    _CONCERT_PLAN,
    _REDECORATE,
    _DINNER_PLAN,
    _OUTING_PLAN,
)
"""Plans that come true, fall through or are put off."""
