"""What people like best to eat, to drink and to wear."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_FAVOURITE_DISH: Final = Relation(
    name="favourite_dish", kind="preference", values="dishes",
    first=(
        "My favourite dish is {value}.", "If I could eat one thing for ever, it would be {value}.",
        "Nothing beats {value} for me.", "I'd walk ten miles in the rain for {value}.",
        "You know what I like best of all food? {value}.",
        "Put {value} in front of me and I stop talking, it's my favourite.",
        "Of everything on earth to eat I'd choose {value}.",
        "{value}, always {value}. There's no better meal as far as I'm concerned.",
    ),
    third=(
        "{name}'s favourite dish is {value}.", "If {name} could eat one thing for ever, it would be {value}.",
        "{name} likes {value} best of everything.",
        "Cook {value} for {name} and you've a friend for life, it's {his} favourite.",
        "{name} always orders {value}, that's {his} favourite meal.", "Nothing beats {value} in {name}'s eyes.",
        "On {his} birthday {name} wants {value}, the favourite dish.",
        "Of all the food in the world {name} picks {value}.",
    ),
    hearsay=(
        "I heard that {name}'s favourite dish is {value}.", "Someone said {name} likes {value} best, is that so?",
        "Supposedly {name} would eat {value} every day if {he} could.", "Isn't {value} the favourite meal of {name}?",
        "I think {name} picks {value} over everything else, but I'd have to ask.",
        "They say nothing beats {value} for {name}.",
        "My guess from what people say is that {name} loves {value} most.",
        "Apparently {value} is what {name} likes best to eat.",
    ),
    change=(
        "My favourite dish used to be {old}, now it's {value}.",
        "I've gone off {old}, it's {value} that I like best now.",
        "{when} I discovered {value} and it's my favourite now.", "New favourite meal: {value}!",
        "I never thought anything would beat {old}, but {value} does.",
        "Since I tasted it {when} nothing beats {value}.",
        "These days I'd choose {value} over everything, even {old}.",
        "I've changed my mind about food: the best dish is {value}.",
    ),
    change_third=(
        "{name}'s favourite dish used to be {old}, now it's {value}.",
        "{name} has gone off {old}, {he} likes {value} best now.",
        "There's a new favourite on {name}'s table: {value}.",
        "{when} {name} discovered {value}, and it's {his} favourite now.",
        "For {name} nothing beats {value} these days, not even {old}.",
        "Don't cook {old} for {name} any more, the favourite is {value} now.",
        "{name} tried {value} {when} and now likes it best.", "These days {name} would choose {value} over anything.",
    ),
    correct=(
        "I said {old} was my favourite dish, I meant {value}.", "Not {old}. {value} is what I like best.",
        "My favourite meal is {value}, {old} was a slip of the thumb.",
        "Wait, I wrote {old}? Everyone knows I like {value} best.",
        "Sorry, {old} is fine but my favourite has always been {value}.",
        "Let me correct my menu: {value} is the favourite, {old} never was.",
        "It's {value} I'd eat every day and not {old}, I mixed them up.",
        "When I said {old}, I was hungry and confused. {value} is my favourite.",
    ),
    prompts=(
        "What should I cook when you come over?", "What's your favourite thing to eat?",
        "What could you eat every single day?", "What do you fancy when you're hungry?",
    ),
    jokes=(
        "I'd marry {value} if the law allowed it. Only teasing, I can't stand weddings.",
        "Someone once paid me to love {value}. In a cartoon.",
        "I bathe in {value} on weekends. Obviously I don't.", "My blood type is {value}, ask any comedian.",
    ),
    asks={
        "now": (
            "What is {name}'s favourite dish now?", "What does {name} like best to eat these days?",
            "Which meal is {name}'s favourite at present?", "What food does {name} prefer to all others now?",
            "What would you cook to please {name} most today?", "Which dish does {name} love most at the moment?",
            "What is the current favourite meal of {name}?", "Nothing beats which dish for {name} now?",
        ),
        "then": (
            "What was {name}'s favourite dish {when}?", "What did {name} like best to eat {when}?",
            "Which meal was {name}'s favourite {when}?", "What food did {name} prefer to all others {when}?",
            "Which dish did {name} love most {when}?", "What would you have cooked to please {name} most {when}?",
            "What was the favourite meal of {name} {when}?", "Which dish came first in {name}'s heart {when}?",
        ),
    },
)
_FAVOURITE_DRINK: Final = Relation(
    name="favourite_drink", kind="preference", values="drinks",
    first=(
        "My favourite drink is {value}.", "I run on {value}, it's what I like best.",
        "Whatever the weather, I'll have {value}. It's my favourite.",
        "If you're buying, {value} please, it's what I always like most.",
        "No drink comes close to {value} for me.", "{value} is my drink of choice.",
        "You can keep the rest, I'd rather have {value} than anything.", "I'd pick {value} over any other drink.",
    ),
    third=(
        "{name}'s favourite drink is {value}.", "{name} runs on {value}, it's {his} favourite.",
        "If you're buying for {name}, get {value}, that's what {he} likes most.",
        "{name} would pick {value} over any other drink.",
        "{value} is {name}'s drink of choice.", "No drink comes close to {value} for {name}.",
        "Ask {name} what {he} wants and it's always {value}, the favourite.",
        "For {name} it's {value} above all drinks.",
    ),
    hearsay=(
        "I think {name}'s favourite drink is {value}.", "Isn't {value} the drink {name} likes best?",
        "Someone told me {name} always has {value}, the favourite.",
        "I heard {name} prefers {value} to any other drink.",
        "Supposedly {name} runs on {value}.", "If I remember, {name} likes {value} most, as drinks go.",
        "They say {value} is {name}'s drink of choice.",
        "Could be wrong, but I believe {name} loves {value} above all.",
    ),
    change=(
        "I've moved on from {old}, my favourite drink is {value} now.",
        "{when} I tried {value} and that's my favourite now.",
        "My drink of choice is {value} these days.", "No more {old} for me, I'd rather have {value} now.",
        "I prefer {value} to everything now, ever since I tried it {when}.",
        "Funny how taste changes, I like {value} best now and no longer {old}.",
        "New favourite drink: {value}.", "{old} has lost its throne, {value} is what I like most.",
    ),
    change_third=(
        "{name} has moved on from {old}, the favourite drink is {value} now.",
        "{when} {name} tried {value} and likes it best now.",
        "{name}'s drink of choice is {value} these days.", "{name} would rather have {value} now than {old}.",
        "Since {he} tried it {when}, {name} prefers {value} to any other drink.",
        "There's a new favourite drink for {name}: {value}.",
        "Don't bring {name} {old} any more, {he} likes {value} best now.",
        "For {name}, {value} has taken the place of {old}.",
    ),
    correct=(
        "I said {old} is my favourite drink, it's {value}.", "Not {old}, {value} is my drink.",
        "What I like best is {value}, please forget {old}.",
        "I mixed up my orders, {value} is the favourite and not {old}.",
        "{old}? No, I meant that {value} is my drink of choice.", "Sorry, I typed {old} but my favourite is {value}.",
        "My favourite drink has never been {old}, it's {value}.",
        "Before you buy me any {old}: it's {value} I love, and that was a slip.",
    ),
    prompts=(
        "What can I get you to drink?", "What's your favourite drink these days?",
        "What do you order in a bar or cafe?", "What are you drinking?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite drink now?", "Which drink does {name} like best these days?",
            "What is {name}'s drink of choice at present?", "What should one buy {name} to drink now?",
            "Which drink does {name} prefer to all others at the moment?",
            "What does {name} most like to drink currently?",
            "Above all other drinks, which does {name} choose today?",
            "What is the current favourite of {name} among drinks?",
        ),
        "then": (
            "What was {name}'s favourite drink {when}?", "Which drink did {name} like best {when}?",
            "What was {name}'s drink of choice {when}?", "Which drink did {name} prefer to all others {when}?",
            "What did {name} most like to drink {when}?", "What should one have bought {name} to drink {when}?",
            "What was the favourite of {name} among drinks {when}?",
            "Above all other drinks, which did {name} choose {when}?",
        ),
    },
)
_FAVOURITE_COLOUR: Final = Relation(
    name="favourite_colour", kind="preference", values="colours",
    first=(
        "My favourite colour is {value}.", "I'd paint the whole world {value} if they let me, I love that colour most.",
        "{value} is the colour I like best.", "Everything I own ends up {value}, my favourite colour.",
        "Any colour, as long as it's {value}, that's my rule.", "Of all the colours I'd pick {value}.",
        "You know me and {value}, it's the best colour there is.",
        "If in doubt, buy it in {value}. That's my favourite.",
    ),
    third=(
        "{name}'s favourite colour is {value}.", "{name} would paint the whole world {value}, it's {his} favourite.",
        "{value} is the colour {name} likes best.", "Everything {name} owns is {value}, the favourite colour.",
        "Of all the colours {name} picks {value}.", "If you buy {name} anything, get it in {value}, {his} favourite.",
        "For {name} there's no finer colour than {value}.", "{name} likes {value} more than any other colour.",
    ),
    hearsay=(
        "I think {name}'s favourite colour is {value}.", "Somebody said {name} likes {value} best of all colours.",
        "Isn't {value} the colour {name} loves most?",
        "Supposedly {name}'s favourite colour is {value}, going by the curtains.",
        "I heard that {name} prefers {value} to any colour.", "If I recall, {value} is {name}'s favourite.",
        "They say everything has to be {value} for {name}, the favourite colour.",
        "I'm guessing, but {value} might be {name}'s favourite colour.",
    ),
    change=(
        "My favourite colour is {value} now, I'm over {old}.",
        "{when} I fell for {value} and it's my favourite colour now.",
        "I used to love {old}, now I like {value} best.", "New phase, new favourite colour: {value}.",
        "{value} has been my favourite colour since I saw that painting {when}.",
        "Out with {old}! The best colour is {value} now.",
        "I've changed colours, I like {value} most these days.",
        "{old} has had its day with me, my favourite is {value}.",
    ),
    change_third=(
        "{name}'s favourite colour is {value} now, {he} is over {old}.",
        "{when} {name} fell for {value} and likes it best now.",
        "{name} used to love {old}, now the favourite is {value}.", "A new favourite colour for {name}: {value}.",
        "{name} likes {value} better than any other colour since {he} repainted {when}.",
        "{name} has gone off {old} and loves {value} most.",
        "These days {name} likes {value} best.",
        "No more {old} cushions at {name}'s, {his} favourite colour is {value} now.",
    ),
    correct=(
        "I said my favourite colour was {old}, I meant {value}.", "Not {old}, {value} is my colour.",
        "It's {value} I love, {old} makes me look ill.",
        "Sorry, wrong colour! My favourite is {value} and never was {old}.",
        "Please ignore {old}, my favourite colour is {value}.",
        "I typed {old} while looking at a {old} cup. My favourite is {value}.",
        "My favourite colour is {value} and not {old}, who am I even.",
        "Swap {old} for {value} in what I wrote, that's the colour I like best.",
    ),
    prompts=(
        "What colour should I wrap it in?", "What's your favourite colour?",
        "Which colour would you paint it?", "What colour do you like best these days?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite colour now?", "Which colour does {name} like best these days?",
            "What colour does {name} prefer at present?", "Which colour would please {name} most today?",
            "In which colour should one buy things for {name} now?", "What is the current favourite colour of {name}?",
            "Which of all colours is {name}'s favourite at the moment?", "What colour does {name} love most now?",
        ),
        "then": (
            "What was {name}'s favourite colour {when}?", "Which colour did {name} like best {when}?",
            "What colour did {name} prefer {when}?", "Which colour would have pleased {name} most {when}?",
            "Which of all colours was {name}'s favourite {when}?", "What colour did {name} love most {when}?",
            "In which colour should one have bought things for {name} {when}?",
            "What was the favourite colour of {name} {when}?",
        ),
    },
)
_FAVOURITE_DESSERT: Final = Relation(
    name="favourite_dessert", kind="preference", values="desserts",
    first=(
        "My favourite dessert is {value}.", "I always leave room for {value}, I like it best of all puddings.",
        "For afters I'd choose {value} over anything.",
        "{value} is the reason I finish my vegetables. Best dessert there is.",
        "Nobody gets between me and {value}, my favourite sweet thing.",
        "If the menu has {value}, I've made up my mind about dessert.",
        "The dessert I love most is {value}.",
        "Give me {value} and I'll forgive you anything, it's my favourite dessert.",
    ),
    third=(
        "{name}'s favourite dessert is {value}.", "{name} always leaves room for {value}, the best of all puddings.",
        "For afters {name} would choose {value} over anything.",
        "If the menu has {value}, {name} has made up {his} mind about dessert.",
        "The dessert {name} loves most is {value}.",
        "Nobody gets between {name} and {value}, {his} favourite sweet thing.",
        "{name} would forgive you anything for {value}, {his} favourite dessert.",
        "You can't go wrong with {value} if {name} comes to tea, it's the favourite.",
    ),
    hearsay=(
        "I think {name}'s favourite dessert is {value}.", "Someone said {name} likes {value} best for afters.",
        "Isn't {value} the pudding {name} loves most?",
        "Apparently {name} always leaves room for {value}, {his} favourite.",
        "If I heard right, {name} prefers {value} to all desserts.", "Supposedly {name} would do anything for {value}.",
        "They say that nobody gets between {name} and {value}.",
        "I was told {name} picks {value} for dessert whenever {he} can.",
    ),
    change=(
        "{when} I tasted {value}, and it's my favourite dessert now.",
        "My favourite dessert is {value} now, I've had enough of {old}.",
        "I used to love {old} most, now it's {value} for afters.", "New favourite dessert: {value}.",
        "I'd choose {value} over any dessert these days, {old} included.",
        "Since that dinner {when} I like {value} best for dessert.",
        "For afters it has to be {value} now.", "{old} was a phase, {value} is the dessert I love.",
    ),
    change_third=(
        "{when} {name} tasted {value}, and likes it best now.",
        "{name}'s favourite dessert is {value} now, {he} has had enough of {old}.",
        "{name} used to love {old} most, now it's {value} for afters.",
        "There's a new favourite dessert for {name}: {value}.",
        "These days {name} would choose {value} over any dessert.",
        "Since that dinner {when} {name} likes {value} best for dessert.",
        "Don't bake {old} for {name} any more, the favourite is {value} now.",
        "For afters it has to be {value} now if {name} is at the table.",
    ),
    correct=(
        "I said my favourite dessert was {old}, I meant {value}.", "Not {old}, {value}. That's my pudding.",
        "I mixed up the sweets, I like {value} best and not {old}.",
        "Sorry, {old} gives me toothache, my favourite is {value}.",
        "It's {value} that I love, please forget {old}.",
        "My favourite dessert is {value}. Writing {old} was plain hunger.",
        "Before you bake: it's {value}, never {old}, that I like best.",
        "{value} is the one I'd choose. I typed {old} by accident.",
    ),
    prompts=(
        "What's your favourite dessert?", "What should I bake for you?",
        "Have you got a sweet tooth?", "What do you have for afters?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite dessert now?", "Which dessert does {name} like best these days?",
            "What would {name} choose for afters at present?", "What should one bake for {name} now?",
            "Which pudding does {name} love most at the moment?",
            "What is the current favourite of {name} among desserts?",
            "For which dessert would {name} always leave room now?",
            "What sweet thing does {name} prefer to all others today?",
        ),
        "then": (
            "What was {name}'s favourite dessert {when}?", "Which dessert did {name} like best {when}?",
            "What would {name} have chosen for afters {when}?", "What should one have baked for {name} {when}?",
            "Which pudding did {name} love most {when}?", "What was the favourite of {name} among desserts {when}?",
            "For which dessert would {name} always have left room {when}?",
            "What sweet thing did {name} prefer to all others {when}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _FAVOURITE_DISH,
    _FAVOURITE_DRINK,
    _FAVOURITE_COLOUR,
    _FAVOURITE_DESSERT,
)
"""What people like best to eat, to drink and to wear."""
