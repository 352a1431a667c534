"""Homes and what stands in and before them."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_LIVES_IN: Final = Relation(
    name="lives_in", kind="state", values="cities",
    first=(
        "I live in {value}.", "Home for me is {value} these days.",
        "My flat is in {value}, so come and stay whenever you like.", "Did I ever tell you I'm based in {value}?",
        "If you're ever in {value}, my sofa is yours. I live there.",
        "{value} is where I pay rent, for better or worse.",
        "All my post goes to {value} now, that's home.",
        "I'm a {value} resident, even if the accent hasn't caught up yet.",
    ),
    third=(
        "{name} lives in {value}.", "Home for {name} is {value} these days.",
        "If you want to see {name}, you'll have to travel, {he} lives in {value}.",
        "{name} has a place of {his} own in {value}.",
        "{value} is where {name} lives, in case you wondered.", "You know {name} is based in {value}, right?",
        "I sent {name} a card, the address was in {value} because that's where {he} lives.",
        "{name} rents somewhere in {value}.",
    ),
    hearsay=(
        "I think {name} lives in {value}, but don't quote me.",
        "Isn't {name} living in {value}? That's what I heard, anyway.",
        "Someone told me that {name} has {his} home in {value}.", "As far as I know, {name} lives in {value}.",
        "Apparently home for {name} is {value}. I haven't checked.",
        "If I've got it right, {name} is based in {value}.",
        "The rumour is that {name} lives in {value}.",
        "Not a hundred percent sure, but I believe {name} rents a place in {value}.",
    ),
    change=(
        "Big news, I moved to {value} {when}.", "I've left {old} behind and live in {value} now.",
        "The boxes are finally unpacked: {value} is home now.",
        "{when} I handed back the keys in {old} and moved to {value}.",
        "I don't live in {old} any more, I'm in {value} these days.",
        "So I did it, I moved. New city, new life, hello {value}!",
        "You'll need my new address, I moved to {value} {when}.", "Goodbye {old}, hello {value}! The move is done.",
    ),
    change_third=(
        "{name} moved to {value} {when}.", "{name} has left {old} and lives in {value} now.",
        "Guess who packed up everything? {name} lives in {value} now.", "{when} {name} swapped {old} for {value}.",
        "{name} isn't in {old} any more, {he} moved to {value}.",
        "I helped carry boxes: {name} moved to {value} {when}.",
        "{value} has a new resident, {name} just moved there.",
        "{name} gave up the place in {old}, home is {value} now.",
    ),
    correct=(
        "Sorry, I wrote {old} before, I meant {value}. That's where I live.",
        "Not {old}, {value}! My fingers were quicker than my brain. I live in {value}.",
        "Did I say I live in {old}? It's {value}, I need more sleep.",
        "Scratch what I said about {old}, I live in {value}.",
        "Oops, autocorrect. I've never lived in {old}, my home is in {value}.",
        "I got that wrong earlier. It's {value} that I live in and not {old}.",
        "Ignore the {old} thing, I live in {value}.",
        "Correction from me: home is {value}, I don't know why I said {old}.",
    ),
    prompts=(
        "Where do you live these days?", "Where's home for you at the moment?",
        "Which city should I send your birthday card to?", "Remind me, where are you living?",
    ),
    jokes=(
        "Keep nagging and I'll emigrate to {value} by balloon. Joke!",
        "I own half of {value}. Half of a postcard of it, that is.",
        "Address me as the Duchess of {value}, thank you. Just kidding.",
        "Last night I dreamt so loudly that I woke up in {value}. Not literally, calm down.",
        "At this rent I'll soon be living in {value}. Kidding!",
        "I'm basically the mayor of {value}, in my dreams at least.",
        "If it rains one more day I'm officially living in {value}, in spirit.",
        "Sure, and I live in a castle in {value} with nine butlers. Ha!",
    ),
    asks={
        "now": (
            "Where does {name} live now?", "In which city does {name} live at present?",
            "What city does {name} call home these days?",
            "If you wanted to visit {name} at home, which city would you go to?",
            "Where is {name}'s home at the moment?", "Which city is {name} living in?",
            "What is {name}'s current city of residence?", "In what city would a letter reach {name} today?",
        ),
        "then": (
            "Where did {name} live {when}?", "Which city was {name}'s home {when}?",
            "In what city was {name} living {when}?", "What city did {name} call home {when}?",
            "Which city did {name} have {his} home in {when}?",
            "If you had visited {name} at home {when}, which city would that have been?",
            "Back then, {when}, where was {name} living?", "What was {name}'s city of residence {when}?",
        ),
        "when": (
            "When did {name} move to {value}?", "What was the date of {name}'s move to {value}?",
            "On which day did {name} move to {value}?", "When did {value} become {name}'s home?",
            "What day did {name} start living in {value}?", "Do you know when {name} settled in {value}?",
            "When exactly did {name} make the move to {value}?", "At what date did {name} go to live in {value}?",
        ),
    },
)
_HOME_TYPE: Final = Relation(
    name="home_type", kind="state", values="homes",
    first=(
        "I live in {a_value}, which suits me fine.", "My place is {a_value}, nothing grand.",
        "Have I described my home to you? It's {a_value}.", "Imagine {a_value}, slightly chaotic. That's where I live.",
        "These days I call {a_value} home.", "It's {a_value}, my place, and the heating has opinions.",
        "I come home to {a_value} every evening and I'm glad of it.", "If you visit, look for {a_value}. That's me.",
    ),
    third=(
        "{name} lives in {a_value}.", "{name}'s place is {a_value}, and {he} likes it there.",
        "Home is {a_value} for {name}.", "You should see where {name} lives, it's {a_value}.",
        "{name} comes home to {a_value} every night.", "It's {a_value}, the place {name} lives in.",
        "I've been round to {name}'s, it's {a_value} with a strange front door.",
        "In case you're picturing it, {name} lives in {a_value}.",
    ),
    hearsay=(
        "I heard that {name} lives in {a_value}.", "Someone said that {name}'s home is {a_value}, is that right?",
        "Supposedly {name} lives in {a_value}, though I've never been.",
        "I'm fairly sure {name} has {a_value} as a home.",
        "Isn't it {a_value} that {name} lives in?", "They say {name}'s place is {a_value}.",
        "If the gossip is true, {name} is living in {a_value}.",
        "I gather {name} calls {a_value} home, but I might be mixing things up.",
    ),
    change=(
        "I moved into {a_value} {when}.", "We've swapped {a_old} for {a_value}, so come and see.",
        "No more {a_old} for me, I live in {a_value} now.", "New keys! Home has been {a_value} since I moved {when}.",
        "I traded {a_old} for {a_value} and I don't miss it.",
        "{when} I got the keys to {a_value}, so that's where I live now.",
        "Guess what, I live in {a_value} now.", "I said farewell to {a_old} and hello to {a_value}.",
    ),
    change_third=(
        "{name} moved into {a_value} {when}.", "{name} gave up {a_old} and lives in {a_value} now.",
        "Have you been to {name}'s new home? It's {a_value}.", "{when} {name} left {a_old} for {a_value}.",
        "{name} doesn't live in {a_old} any more, it's {a_value} now.",
        "I carried {name}'s sofa into {a_value} {when}. My back!",
        "{name} has a new home, {a_value}, would you believe.",
        "After years of saying so, {name} swapped {a_old} for {a_value}.",
    ),
    correct=(
        "I said I live in {a_old}, but it's {a_value}. Wrong word.", "Not {a_old}, {a_value}! That's my home.",
        "Sorry, I called my place {a_old}, it's really {a_value}.",
        "Forget the {old} from before, I live in {a_value}.",
        "I misspoke, my home is {a_value} and never was {a_old}.", "It isn't {a_old} that I live in, it's {a_value}.",
        "Why did I type {a_old}? It's {a_value} I live in.",
        "Small correction: {a_value} is what I call home, {a_old} was nonsense.",
    ),
    prompts=(
        "What's your place like?", "What kind of home have you got these days?",
        "So what sort of place do you live in?", "I can't picture your home, what is it?",
    ),
    jokes=(
        "With this clutter I live in {a_value} made of cardboard, basically. Kidding.",
        "Come to my palace! Fine, in my head it's {a_value}.",
        "On my salary I'll be moving into {a_value} in the year three thousand. Joke.",
        "My ideal home is {a_value} on the moon, I've signed nothing yet, obviously.",
    ),
    asks={
        "now": (
            "What kind of home does {name} live in now?", "What sort of place does {name} live in at present?",
            "How would you describe the type of home {name} has now?", "In what type of home does {name} live?",
            "What does {name} live in at the moment?", "What kind of dwelling is {name}'s home these days?",
            "If you rang at {name}'s door today, what sort of home would it be?",
            "Which type of housing does {name} live in currently?",
        ),
        "then": (
            "What kind of home did {name} live in {when}?", "What sort of place was {name}'s home {when}?",
            "In what type of home was {name} living {when}?", "What did {name} live in {when}?",
            "Which type of home did {name} have {when}?", "How did {name} live {when}, in what sort of home?",
            "What type of housing was {name} in {when}?", "What kind of dwelling did {name} come home to {when}?",
        ),
    },
)
_VEHICLE: Final = Relation(
    name="vehicle", kind="state", values="vehicles",
    first=(
        "I drive {a_value}, if you must know.", "I own {a_value}, and yes, I've given it a name.",
        "Have you seen what I ride around in? It's {a_value}.", "My pride and joy is {a_value}.",
        "I get about in or on {a_value}, depending on how you see it.", "For weekends I've got {a_value}.",
        "{a_value} lives outside my door, and it's all mine.",
        "The only thing I own with wheels or a hull is {a_value}.",
    ),
    third=(
        "{name} owns {a_value}.", "{name} gets around with {a_value}.",
        "{name}'s pride and joy is {a_value}.", "That's {name}'s parked out there, {he} has {a_value}.",
        "For getting about, {name} has {a_value}.", "{name} keeps {a_value} outside {his} home.",
        "You can't miss {name}, {he} has {a_value}.", "When {name} goes anywhere at the weekend, it's with {a_value}.",
    ),
    hearsay=(
        "I think {name} owns {a_value}.", "Somebody told me that {name} has {a_value}.",
        "Doesn't {name} have {a_value} for getting around?", "Apparently {name} keeps {a_value} somewhere.",
        "I heard {name} gets about with {a_value}, could be wrong.", "Rumour has it {name} is the owner of {a_value}.",
        "If I'm not mistaken, {name} has {a_value} these days.",
        "They tell me it's {a_value} that {name} owns, but who knows.",
    ),
    change=(
        "{when} I got myself {a_value}.", "I sold my {old} and bought {a_value}.",
        "Out with the {old}, in with {a_value}.", "Look who's got {a_value}, I picked it up {when}.",
        "The old {old} is gone, I have {a_value} now.", "I traded in the {old} {when} and came home with {a_value}.",
        "I've got {a_value} now, it's love.", "New wheels, sort of: I own {a_value} now.",
    ),
    change_third=(
        "{when} {name} got {him}self {a_value}.", "{name} sold {his} {old} and bought {a_value}.",
        "{name} no longer has the {old}, {he} has {a_value} now.", "Have you seen it? {name} bought {a_value} {when}.",
        "{name} traded the {old} for {a_value}.", "There's {a_value} outside {name}'s now, brand new to {him}.",
        "{when} {name} came home with {a_value}, and the {old} was gone.",
        "{name} has upgraded, {he} owns {a_value} now.",
    ),
    correct=(
        "I told you I have {a_old}, I meant {a_value}.", "It's {a_value} I own, not {a_old}. Brain fog.",
        "Did I say {a_old}? I've got {a_value}.",
        "Forget the {old}, I own {a_value}. I was thinking of someone else's.",
        "Not {a_old}, {a_value}! That's what I've got parked outside.",
        "I keep mixing up words: what I own is {a_value}, not {a_old}.",
        "Sorry, wrong one, I never had {a_old}, mine is {a_value}.",
        "Let me correct that, {a_value} is mine, {a_old} isn't.",
    ),
    prompts=(
        "What do you get around in these days?", "What are you driving or riding now?",
        "What have you got parked outside?", "How do you get about at weekends?",
    ),
    jokes=(
        "My other vehicle is {a_value}, in a parallel universe.",
        "Yes, I arrived by {a_value} with a brass band behind me. Of course I didn't.",
        "Give me a minute, my butler is polishing {a_value}. Ha ha.",
        "When I win the lottery it'll be {a_value} for every day of the week, so don't hold your breath.",
    ),
    asks={
        "now": (
            "What vehicle does {name} own now?", "What does {name} get around with these days?",
            "Which vehicle has {name} got at present?", "What kind of vehicle is {name}'s?",
            "What is parked outside {name}'s home these days?", "Which vehicle belongs to {name} at the moment?",
            "What does {name} drive, ride or sail currently?", "What is the vehicle that {name} has now?",
        ),
        "then": (
            "What vehicle did {name} own {when}?", "What did {name} get around with {when}?",
            "Which vehicle did {name} have {when}?", "What kind of vehicle was {name}'s {when}?",
            "Which vehicle belonged to {name} {when}?", "What was parked outside {name}'s home {when}?",
            "What did {name} drive, ride or sail {when}?", "At that time, {when}, which vehicle did {name} have?",
        ),
    },
)
_COMMUTE: Final = Relation(
    name="commute", kind="state", values="commutes",
    first=(
        "I get to work by {value}.", "My commute is by {value}, door to door.",
        "I'm a {value} person when it comes to commuting.", "It's the {value} for me every morning, rain or shine.",
        "Have I told you how I travel to work? By {value}.",
        "I go in by {value} and get all my thinking done on the way.",
        "To get to work I take the {value}.", "Twice a day you'll find me commuting by {value}.",
    ),
    third=(
        "{name} gets to work by {value}.", "{name} commutes by {value}, every single day.",
        "Most mornings you can spot {name} on {his} way to work by {value}.",
        "It's the {value} that takes {name} to work.",
        "For the trip to work, {name} relies on the {value}.", "By {value}, that's how {name} commutes.",
        "{name} swears by {his} commute by {value}.", "You know how {name} travels to work? By {value}.",
    ),
    hearsay=(
        "I think {name} goes to work by {value}.", "Someone saw {name} commuting by {value}, or so they claim.",
        "Doesn't {name} get to work by {value}?", "I was told that {name} commutes by {value}.",
        "Supposedly it's the {value} that {name} takes to work.",
        "If I remember right, {name} travels to work by {value}.",
        "Rumour says that {name} does {his} commute by {value}.",
        "It sounds as though {name} gets to work by {value}, but I'm guessing.",
    ),
    change=(
        "I've stopped going by {old}, I commute by {value} now.", "{when} I switched to commuting by {value}.",
        "I'm on the {value} to work these days, it's so much better.", "Goodbye {old}! I get to work by {value} now.",
        "New routine: I've been going to work by {value} since I switched {when}.",
        "Changed my commute again, by {value} this time.",
        "The {old} was wearing me out, so now I go to work by {value}.",
        "{when} I gave up on the {old} and took the {value} to work. It stuck.",
    ),
    change_third=(
        "{name} switched to commuting by {value} {when}.",
        "{name} no longer goes to work by {old}, it's the {value} now.",
        "Have you noticed? {name} goes to work by {value} now.",
        "{when} {name} gave up the {old} and began to commute by {value}.",
        "{name} got fed up with the {old} and takes the {value} to work now.",
        "There's a new commute for {name}: by {value}.",
        "{name} travels to work by {value} these days, {he} changed over {when}.",
        "The {old} has lost {name}, {he} commutes by {value} now.",
    ),
    correct=(
        "I wrote that I commute by {old}, that's wrong, it's by {value}.",
        "Not by {old}, by {value}! That's how I get to work.",
        "Sorry, by {value} is how I go to work. I don't know where {old} came from.",
        "Ignore {old} from before, my commute is by {value}.",
        "I said {old}, I meant {value}, for getting to work.",
        "My mistake: it's the {value} I take to work and not the {old}.",
        "Wait, did I say I travel by {old}? I get to work by {value}.",
        "I mixed it up, I commute by {value}, never by {old}.",
    ),
    prompts=(
        "How do you get to work?", "What's your commute like?",
        "How are you travelling in these days?", "How do you get in every morning?",
    ),
    asks={
        "now": (
            "How does {name} get to work now?", "By what means does {name} commute these days?",
            "What does {name} take to get to work at present?", "What is {name}'s current way of commuting?",
            "Which means of transport does {name} use to go to work?", "How does {name} travel to work at the moment?",
            "What mode of transport takes {name} to work now?",
            "When {name} sets off for work these days, how does {he} travel?",
        ),
        "then": (
            "How did {name} get to work {when}?", "By what means did {name} commute {when}?",
            "What did {name} take to get to work {when}?",
            "Which means of transport did {name} use for the commute {when}?",
            "How was {name} travelling to work {when}?", "What was {name}'s way of commuting {when}?",
            "What mode of transport took {name} to work {when}?",
            "When {name} set off for work {when}, how did {he} travel?",
        ),
    },
)
_APPLIANCE_BROKE: Final = Relation(
    name="appliance_broke", kind="event", values="appliances", tone="bad",
    first=(
        "My {value} broke down {when}.", "The {value} gave up on me {when}, with a bang.",
        "{when} the {value} died and I've been swearing ever since.",
        "Would you believe it, {when} my {value} packed in.",
        "I've had no working {value} since it broke {when}.",
        "The {value} made a terrible noise {when} and that was the end of it.",
        "Smoke came out of my {value} {when}. It's done for.",
        "You can add my {value} to the list of broken things, it went {when}.",
    ),
    third=(
        "{name}'s {value} broke down {when}.", "{when} the {value} at {name}'s gave up.",
        "Poor {name}, the {value} packed in {when}.", "The {value} died on {name} {when}.",
        "{name} has been without {his} {value} since it broke {when}.",
        "{when} there was a bang at {name}'s and that was the {value} gone.",
        "{name} had bad luck at home: {his} {value} broke {when}.",
        "Smoke everywhere at {name}'s {when}, it was {his} {value} breaking down.",
    ),
    hearsay=(
        "I heard that {name}'s {value} broke {when}.", "Apparently the {value} at {name}'s died {when}.",
        "Somebody said {name} lost {his} {value} to a short circuit {when}.",
        "I think it was {name}'s {value} that gave up {when}.",
        "Didn't {name}'s {value} pack in {when}?", "The story is that {when} {name}'s {value} blew up, more or less.",
        "If it's true, {name}'s {value} broke down {when}.",
        "Supposedly {name} has a dead {value}, it happened {when}.",
    ),
    correct=(
        "I said the {old} broke, it was the {value}.", "Not the {old}, the {value} broke! The {old} is fine.",
        "Sorry, I mixed up my machines: the {value} died and the {old} lives.",
        "It was my {value} that gave up, I don't know why I wrote {old}.",
        "Please ignore the {old}, what broke was the {value}.",
        "The {old} works perfectly, I meant that the {value} broke.",
        "Let me put that right: {value}, not {old}. That's what packed in.",
        "Wrong machine, I'm tired. The {value} broke and not the {old}.",
    ),
    prompts=(
        "Is everything at home still in one piece?", "How's the house treating you?",
        "Anything broken at yours?", "Any domestic disasters to report?",
    ),
    asks={
        "then": (
            "What broke down at {name}'s home {when}?", "Which appliance of {name}'s broke {when}?",
            "Which machine gave up on {name} {when}?", "What stopped working at {name}'s {when}?",
            "Which thing in {name}'s home died {when}?", "What did {name} lose to a breakdown {when}?",
            "What household item of {name}'s packed in {when}?", "Which of {name}'s machines broke {when}?",
        ),
        "when": (
            "When did {name}'s {value} break down?", "On what day did {name}'s {value} give up?",
            "What was the date when {name}'s {value} died?", "When did the {value} at {name}'s stop working?",
            "Since when has {name} been without a working {value}?", "On which date did {name}'s {value} pack in?",
            "When was it that {name}'s {value} broke?", "What day did the {value} break at {name}'s home?",
        ),
        "order": (
            "Which of {name}'s appliances broke first, the {value} or the {other}?",
            "Did {name}'s {value} or {his} {other} break down first?",
            "What gave up earlier at {name}'s, the {value} or the {other}?",
            "Which came first for {name}, the broken {value} or the broken {other}?",
            "Of the {value} and the {other}, which died first at {name}'s home?",
            "Which breakdown did {name} have first: {value} or {other}?",
            "What did {name} lose first, the {value} or the {other}?",
            "Between {name}'s {value} and {his} {other}, which one stopped working earlier?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _LIVES_IN,
    _HOME_TYPE,
    _VEHICLE,
    _COMMUTE,
    _APPLIANCE_BROKE,
)
"""Homes and what stands in and before them."""
