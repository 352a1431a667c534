"""Hobbies, clubs, good works, pets and plants."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_HOBBIES: Final = Relation(
    name="hobbies", kind="set", values="hobbies",
    first=(
        "I've taken up {value}.", "{when} I started {value} and I can't stop.",
        "My new thing is {value}.", "I've got into {value}, against all advice.",
        "I spend my free time on {value} now.", "{value} is one of my hobbies now.",
        "Since I tried it {when} I've been hooked on {value}.", "You'll laugh, but I've added {value} to my hobbies.",
    ),
    third=(
        "{name} has taken up {value}.", "{when} {name} started {value}.",
        "One of {name}'s hobbies is {value}.", "{name} has got into {value} and talks of nothing else.",
        "{name} spends {his} free time on {value}.", "{value} is {name}'s thing now.",
        "{name} got hooked on {value}, it began {when}.",
        "If you can't reach {name} on a Sunday, {he} is busy with {value}.",
    ),
    hearsay=(
        "I heard {name} has taken up {value}.", "Someone said that {name} is into {value} now.",
        "Apparently {name} has a hobby, {value}.", "Isn't {name} doing {value} these days, or trying to?",
        "I think {value} is one of {name}'s hobbies.", "Word is that {name} got hooked on {value}.",
        "Supposedly {name} spends every free hour on {value}.",
        "If I'm not confusing people, {name} has started {value}.",
    ),
    remove=(
        "I've given up {value}.", "I don't do any {value} now, it stopped being fun.",
        "My days of {value} are over.", "I've lost interest in {value} and quit.",
        "I had to stop {value}, my knees complained.", "No more {value} for me.",
        "I've sold all my gear, I'm done with {value}.", "{value} and I have parted ways.",
    ),
    remove_third=(
        "{name} has given up {value}.", "{name} lost interest in {value}.",
        "{name}'s days of {value} are over.", "No more {value} for {name}.",
        "{name} had to stop {value}.", "{name} is done with {value}, {he} sold all the gear.",
        "It was fun while it lasted, but {name} quit {value}.", "{name} and {value} have parted ways.",
    ),
    prompts=(
        "What do you do in your free time?", "Any new hobbies?",
        "How do you spend your weekends?", "What keeps you busy outside work?",
    ),
    jokes=(
        "My doctor prescribed {value} and a holiday. He did not.",
        "I was born for {value}, my mother says. She doesn't, relax.",
        "Olympic gold in {value} is mine, in the kitchen category. Joke.",
        "I dreamt I was famous for {value}. Then I woke up and wasn't.",
        "I'm so bored that I'm thinking of going professional at {value}. Not really!",
        "My only sport is {value}, from the sofa, with my eyes shut.",
        "One more free weekend and I'll be the world champion of {value}. Ha, no.",
        "I've cancelled my life for {value}. Joking, I've never tried it.",
    ),
    asks={
        "now": (
            "What are {name}'s hobbies now?", "Which hobbies does {name} have at present?",
            "What does {name} do in {his} free time these days?", "Which pastimes does {name} still follow?",
            "Name the hobbies that {name} has now.", "How does {name} spend {his} spare hours at the moment?",
            "What is {name} into these days?", "Which hobbies has {name} not given up?",
        ),
        "when": (
            "When did {name} take up {value}?", "On what day did {name} start {value}?",
            "When did {name} begin {value} as a hobby?", "What was the date on which {name} got into {value}?",
            "Since when has {name} been into {value}?", "When did {value} become a hobby of {name}?",
            "What day did {name} first try {value}?", "When was it that {name} got hooked on {value}?",
        ),
        "count": (
            "How many hobbies does {name} have now?", "What is the number of {name}'s hobbies at present?",
            "How many pastimes does {name} follow these days?", "How many hobbies has {name} still got?",
            "How many things does {name} do as a hobby now?", "Counting them all, how many hobbies does {name} have?",
            "In how many hobbies is {name} active at the moment?", "How many hobbies are on {name}'s list today?",
        ),
        "order": (
            "Which did {name} take up first, {value} or {other}?", "Did {name} start {value} or {other} first?",
            "Which hobby of {name}'s came first: {value} or {other}?",
            "Which is {name}'s older hobby, {value} or {other}?",
            "Of {value} and {other}, which did {name} get into first?",
            "Was it {value} or {other} that {name} began earlier?",
            "Between {value} and {other}, what did {name} take up before the other?",
            "In what did {name} take an interest first, {value} or {other}?",
        ),
    },
)
_CLUBS: Final = Relation(
    name="clubs", kind="set", values="clubs",
    first=(
        "I've joined the {value}.", "I'm a member of the {value} now.",
        "The {value} has a new member: me.", "{when} I signed up for the {value}.",
        "I go to the {value} every week now.", "I pay my dues at the {value}, so I'm in.",
        "Since I joined {when} the {value} has been the best part of my week.",
        "They let me into the {value}, poor fools.",
    ),
    third=(
        "{name} has joined the {value}.", "{name} is a member of the {value}.",
        "{name} goes to the {value} every week.", "{when} {name} signed up for the {value}.",
        "The {value} let {name} in.", "You'll find {name} at the {value} most weeks, {he} is a member.",
        "{name} joined the {value} {when} and loves it.", "Among the members of the {value} is {name}.",
    ),
    hearsay=(
        "I heard {name} joined the {value}.", "Someone told me {name} is in the {value}.",
        "Isn't {name} a member of the {value}?", "Apparently {name} goes to the {value} now.",
        "I believe {name} signed up for the {value}.", "If I'm right, the {value} has {name} as a member.",
        "Supposedly {name} never misses the {value}.", "They say {name} has been let into the {value}.",
    ),
    remove=(
        "I've left the {value}.", "I'm not in the {value} any more.",
        "I let my membership of the {value} run out.", "I quit the {value}, too much politics.",
        "My time in the {value} is over.", "The {value} and I have gone separate ways, I resigned.",
        "I don't go to the {value} now, I handed back my badge.", "I've dropped out of the {value}.",
    ),
    remove_third=(
        "{name} left the {value}.", "{name} isn't in the {value} any more.",
        "{name} let {his} membership of the {value} run out.", "{name} quit the {value}.",
        "{name}'s time in the {value} is over.", "{name} resigned from the {value}.",
        "{name} dropped out of the {value}.", "You won't see {name} at the {value} now, {he} handed back the badge.",
    ),
    prompts=(
        "Have you joined anything lately?", "Are you in any clubs?",
        "Where do you meet people?", "How's your club life?",
    ),
    asks={
        "now": (
            "Which clubs is {name} a member of now?", "What clubs does {name} belong to at present?",
            "Of which clubs is {name} a member these days?", "Name the clubs that {name} is still in.",
            "Which clubs does {name} go to now?", "In what clubs would you find {name} today?",
            "Where does {name} pay dues as a member at the moment?", "Which clubs has {name} joined and not left?",
        ),
        "count": (
            "How many clubs is {name} a member of now?", "To how many clubs does {name} belong at present?",
            "What is the number of clubs that {name} is in?", "How many clubs does {name} go to these days?",
            "In how many clubs is {name} still a member?", "How many memberships does {name} have now?",
            "Counting them all, how many clubs is {name} in?", "How many clubs has {name} joined and not left?",
        ),
    },
)
_VOLUNTEERING: Final = Relation(
    name="volunteering", kind="set", values="causes", tone="good",
    first=(
        "I volunteer at the {value}.", "I've signed up to help at the {value}.",
        "I give a few hours a week to the {value}.", "{when} I began helping out at the {value}.",
        "I'm one of the volunteers at the {value} now.", "The {value} needed hands, so I help there.",
        "I started volunteering with the {value} {when}.", "In my spare time I do shifts at the {value}, unpaid.",
    ),
    third=(
        "{name} volunteers at the {value}.", "{name} helps out at the {value}.",
        "{when} {name} signed up with the {value}.", "{name} gives {his} free hours to the {value}.",
        "{name} does unpaid shifts at the {value}.", "The {value} has {name} as a volunteer.",
        "Did you know {name} helps at the {value}?", "{name} started volunteering at the {value} {when}.",
    ),
    hearsay=(
        "I heard {name} volunteers at the {value}.", "Someone saw {name} helping at the {value}, I think.",
        "Apparently {name} does shifts for the {value}.", "Doesn't {name} give time to the {value}?",
        "If I'm right, {name} is a volunteer at the {value}.", "They say {name} has joined the {value}.",
        "I gather {name} helps out at the {value}, though I can't swear to it.",
        "Supposedly the {value} counts {name} among its volunteers.",
    ),
    remove=(
        "I've stopped volunteering at the {value}.", "I had to give up the {value}, no time.",
        "I don't help at the {value} any more.", "My last shift at the {value} is behind me.",
        "I've said goodbye to everyone at the {value} and stepped down.",
        "The {value} will have to do without me from now on.",
        "I quit at the {value}.", "My time as a volunteer for the {value} is over.",
    ),
    remove_third=(
        "{name} stopped volunteering at the {value}.", "{name} gave up {his} shifts at the {value}.",
        "{name} doesn't help at the {value} any more.", "{name} has left the {value}.",
        "The {value} lost {name} as a volunteer.", "{name}'s time at the {value} is over.",
        "{name} stepped down at the {value}.", "You won't see {name} at the {value} these days, {he} quit.",
    ),
    prompts=(
        "Are you doing any volunteering?", "How's the volunteering?",
        "Do you still find time for good causes?", "What good deeds have you been up to?",
    ),
    asks={
        "now": (
            "Where does {name} volunteer now?", "Which good causes does {name} help at present?",
            "For what does {name} volunteer these days?", "Where is {name} a volunteer at the moment?",
            "Name the places where {name} volunteers now.", "Where does {name} do unpaid shifts currently?",
            "To which causes does {name} give time now?", "Where would you find {name} volunteering today?",
        ),
        "count": (
            "For how many causes does {name} volunteer now?", "How many places have {name} as a volunteer at present?",
            "In how many places does {name} volunteer these days?", "How many good causes does {name} help now?",
            "What is the number of places where {name} volunteers?",
            "How many volunteer posts does {name} hold at the moment?",
            "At how many places does {name} do unpaid shifts now?",
            "Altogether, how many causes is {name} helping these days?",
        ),
    },
)
_PET: Final = Relation(
    name="pet", kind="set", values="animals", tone="good",
    first=(
        "I've got {a_value} now.", "I have {a_value}, which explains the state of the carpet.",
        "{when} I brought home {a_value}.", "There's a new animal in the house: {a_value}.",
        "I'm the proud owner of {a_value}.", "I adopted {a_value} {when}.",
        "My household includes {a_value} these days.", "{when} I went out for bread and came back with {a_value}.",
    ),
    third=(
        "{name} has {a_value}.", "{name} adopted {a_value} {when}.",
        "There's {a_value} at {name}'s.", "{name} is the proud owner of {a_value}.",
        "{when} {name} came home with {a_value}.", "At {name}'s you'll be greeted by {a_value}.",
        "{name} keeps {a_value} as a pet.", "{name} got {a_value} {when}, I've seen the pictures.",
    ),
    hearsay=(
        "I heard {name} has {a_value} now.", "Someone said {name} got {him}self {a_value}.",
        "Apparently there's {a_value} living at {name}'s.", "Doesn't {name} keep {a_value}?",
        "I think {name} owns {a_value}, or maybe {he}'s only minding it.",
        "The gossip is that {name} has adopted {a_value}.",
        "If what they say is true, {name} has {a_value} at home.", "Supposedly {name} came home with {a_value}.",
    ),
    remove=(
        "I had to give away the {value}.", "The {value} died, I'm not ready to talk about it.",
        "My {value} lives with another family now.", "I don't have the {value} any more.",
        "It's very quiet without the {value}. It died in its sleep.", "The {value} ran off and never came back.",
        "I found a new home for the {value}.", "We've said goodbye to the {value}, old age.",
    ),
    remove_third=(
        "{name} had to give away {his} {value}.", "{name}'s {value} died.",
        "{name} doesn't have the {value} any more.", "{name} found a new home for the {value}.",
        "The {value} {name} used to have lives with someone else now.", "Poor {name}, the {value} ran off for good.",
        "There's no {value} at {name}'s any more.", "{name} said goodbye to the {value}, it was very old.",
    ),
    prompts=(
        "How are the animals?", "Do you have any pets?",
        "Anything furry or feathered at yours?", "Who's making that noise in the background?",
    ),
    jokes=(
        "I'm not late, I was delayed by {a_value} with a clipboard. Ha, sure.",
        "My alarm clock is {a_value} in a tiny hat. You believe anything, don't you?",
        "I speak fluent {value}, ask nobody.", "Tax year done, I've declared myself {a_value}. Kidding.",
        "If my flat gets any wilder I'll need to register as {a_value} owner. Kidding.",
        "Before breakfast I'm technically {a_value}. Only joking!",
        "My dream is to be raised by {a_value}. It's a joke, put the phone down.",
        "I'm training {a_value} to answer my emails. I wish.",
    ),
    asks={
        "now": (
            "Which animals does {name} have now?", "What pets does {name} keep at present?",
            "What kinds of animal live with {name} these days?", "Which animals would you meet at {name}'s home now?",
            "Name the animals that {name} still has.", "What pets are there at {name}'s at the moment?",
            "Which animals does {name} own today?", "What animals is {name} looking after as pets now?",
        ),
        "when": (
            "When did {name} get the {value}?", "On what day did {name} bring home the {value}?",
            "When did the {value} come to {name}?", "What was the date on which {name} got {his} {value}?",
            "When did {name} become the owner of a {value}?", "What day did {name} come home with the {value}?",
            "Since when has {name} had the {value}?", "When was it that {name} adopted the {value}?",
        ),
        "count": (
            "How many animals does {name} have now?", "How many pets does {name} keep at present?",
            "How many animals live with {name} these days?", "What is the number of pets at {name}'s now?",
            "How many animals would you meet at {name}'s home today?", "How many pets has {name} still got?",
            "Counting them all, how many animals does {name} own?",
            "How many animals are there in {name}'s household at the moment?",
        ),
    },
)
_PET_NAMES: Final = Relation(
    name="pet_names", kind="set", values="pets",
    first=(
        "One of my pets is called {value}.", "{value} is what I named my pet.",
        "I've got a pet named {value}.", "Meet {value}, the newest member of my household.",
        "{when} I got a pet and called it {value}.", "{value} is snoring on my feet, that's my pet.",
        "The name on the collar is {value}, that one's mine.",
        "I settled on a name for the new pet {when}, it's {value}.",
    ),
    third=(
        "{name} has a pet called {value}.", "One of {name}'s pets is named {value}.",
        "{when} {name} got a pet and named it {value}.", "{value} is a pet of {name}'s.",
        "Have you met {value}? That's {name}'s pet.", "{when} {name} settled on a name for the new pet, {value}.",
        "{value} lives with {name} and rules the house.", "The name on the collar at {name}'s is {value}.",
    ),
    hearsay=(
        "I heard {name} has a pet called {value}.", "Isn't there a {value} at {name}'s, a pet?",
        "Somebody said that {name} named {his} pet {value}.", "I think {value} is one of {name}'s pets.",
        "Supposedly {name} has a creature named {value}.", "If I'm not wrong, {value} belongs to {name}.",
        "Apparently {name} went and called a pet {value}.", "They tell me there's a pet called {value} at {name}'s.",
    ),
    remove=(
        "{value} died, the house is too quiet.", "{value} has gone to live with another family.",
        "I've had to say goodbye to {value}.", "We lost {value}, old age in the end.",
        "I don't have {value} any more.", "There's no more {value} at mine, I found a better home.",
        "{value} passed away peacefully.", "I gave {value} to someone with a bigger garden.",
    ),
    remove_third=(
        "{name} lost {value}, old age.", "{value} isn't with {name} any more.",
        "{name} had to say goodbye to {value}.", "{name} gave {value} to another family.",
        "{name}'s pet {value} died.", "{value} no longer lives with {name}.",
        "{name} found a new home for {value}.", "Be gentle with {name}, {value} passed away.",
    ),
    prompts=(
        "What's your pet called?", "Who's that on your feet?",
        "How are the little monsters?", "Any news from the animals?",
    ),
    asks={
        "now": (
            "What are the names of {name}'s pets now?", "What are {name}'s pets called?",
            "Which pets does {name} have now, by name?", "By what names does {name} call {his} pets these days?",
            "Name the pets that {name} still has.", "What names are on the collars at {name}'s today?",
            "Which named pets live with {name} at present?",
            "What would {name} shout to call {his} pets at the moment?",
        ),
        "count": (
            "How many pets with a name does {name} have now?", "How many named pets live with {name} at present?",
            "How many of {name}'s pets do we know by name now?",
            "What is the number of pets that {name} has a name for?",
            "How many pets of {name}'s are known by name at the moment?",
            "How many pets has {name} named and still got?",
            "How many collars with names are there at {name}'s now?",
            "How many pets known by name does {name} keep these days?",
        ),
        "who": (
            "Whose pet is {value}?", "Who has a pet called {value}?",
            "To whom does {value} belong?", "Who owns {value}?",
            "Which person named a pet {value}?", "With whom does {value} live?",
            "Who is {value}'s owner?", "Whose household does {value} rule?",
        ),
    },
)
_PLANTS: Final = Relation(
    name="plants", kind="set", values="plants",
    first=(
        "I've got {a_value} on the windowsill now.",
        "There's {a_value} in my living room, I'm trying to keep it alive.",
        "My newest houseplant is {a_value}.", "{when} {a_value} moved in on my bookshelf, pot and all.",
        "I bought {a_value} {when}, wish it luck.", "Say hello to my houseplant, it's {a_value}.",
        "I look after {a_value} at home, it has its own mister.", "I've added {a_value} to the indoor jungle.",
    ),
    third=(
        "{name} bought {a_value} at the garden centre {when}.", "{name} has {a_value} at home.",
        "There's {a_value} on {name}'s windowsill.", "Among {name}'s houseplants there is {a_value}.",
        "{name} looks after {a_value} and talks to it, I think.", "{when} {name} brought home {a_value}.",
        "{name} has added {a_value} to {his} indoor jungle.",
        "If you visit {name}, watch out for {a_value}, {he} keeps it by the door.",
    ),
    hearsay=(
        "I heard {name} has {a_value} at home.", "Doesn't {name} have {a_value} somewhere on a shelf?",
        "Someone mentioned that {name} keeps {a_value} at home.",
        "Supposedly there's {a_value} among {name}'s houseplants.",
        "I believe {name} owns {a_value}, though I've not seen it.", "Apparently {name} is growing {a_value} indoors.",
        "The word is that {name} got {him}self {a_value}.", "If I heard right, {a_value} lives on {name}'s windowsill.",
    ),
    remove=(
        "I'm sad to say the {value} died.", "I gave my {value} away, it needed more light.",
        "The {value} is gone, I overwatered it.", "I don't have the {value} any more, it went to the compost.",
        "We held a small funeral for my {value}.", "Somebody adopted my {value}, so that's one pot fewer.",
        "My {value} didn't survive the draught. Gone.", "I finally parted with the {value}.",
    ),
    remove_third=(
        "{name}'s {value} dried out and died.", "{name} gave {his} {value} away.",
        "The {value} at {name}'s is gone, it got too much water.", "{name} has no {value} now, it went to the compost.",
        "Poor {name}, {his} {value} didn't make it.", "{name} parted with {his} {value}.",
        "Somebody else looks after {name}'s old {value} now, {he} let it go.",
        "There's an empty pot at {name}'s, the {value} died.",
    ),
    prompts=(
        "How's the indoor jungle?", "Any houseplant news?",
        "What's happening on your windowsill?", "How are your plants doing?",
    ),
    asks={
        "now": (
            "Which houseplants does {name} have now?", "What plants does {name} keep at home at present?",
            "What is growing in {name}'s home these days?", "Which plants are on {name}'s windowsill now?",
            "Name the houseplants that {name} still has.", "What houseplants does {name} look after at the moment?",
            "Which plants would you see at {name}'s home today?", "What does {name}'s indoor jungle consist of now?",
        ),
        "count": (
            "How many houseplants does {name} have now?", "How many plants does {name} keep at home at present?",
            "What is the number of houseplants {name} owns?", "How many houseplants does {name} still have?",
            "How many plants would you count at {name}'s home today?",
            "How large is {name}'s collection of houseplants, in plants?",
            "How many potted plants is {name} looking after these days?",
            "Counting them all, how many houseplants has {name} got?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _HOBBIES,
    _CLUBS,
    _VOLUNTEERING,
    _PET,
    _PET_NAMES,
    _PLANTS,
)
"""Hobbies, clubs, good works, pets and plants."""
