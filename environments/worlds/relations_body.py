"""Diet, exercise, sport, fears and tattoos."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_DIET: Final = Relation(
    name="diet", kind="state", values="diets",
    first=(
        "I'm on a {value} diet.", "I eat {value}, all week long.",
        "I'm strict about food: {value}, no exceptions.", "If you cook for me, remember it has to be {value}.",
        "My diet is {value}.", "I've been told to eat {value}, so that's what I do.",
        "It's a {value} diet for me.", "My fridge is entirely {value}, have a look.",
    ),
    third=(
        "{name} is on a {value} diet.", "{name} eats {value}.",
        "If you cook for {name}, remember it has to be {value}.", "{name}'s diet is {value}.",
        "{name} keeps to a {value} diet, without exceptions.", "Everything in {name}'s fridge is {value}.",
        "For {name} it has to be {value}, I checked before I cooked.",
        "{name} is strict about food, {value} all the way.",
    ),
    hearsay=(
        "I think {name} is on a {value} diet.", "Someone said {name} eats {value}.",
        "Isn't {name}'s diet {value}?", "I heard that {name} keeps to a {value} diet.",
        "Supposedly everything has to be {value} for {name}.", "If I'm not mistaken, {name} eats only {value} food.",
        "They say {name}'s fridge is {value} from top to bottom.",
        "Better ask, but apparently {name} is on a {value} diet.",
    ),
    change=(
        "{when} I started a {value} diet.", "I've switched from a {old} diet to a {value} one.",
        "I'm not on the {old} diet any more, I eat {value} now.", "New diet: {value}.",
        "I gave up on {old} and went {value} {when}.", "My diet is {value} these days.",
        "My doctor asked me to drop the {old} diet, so I eat {value}.",
        "I've been eating {value} since I changed over {when}.",
    ),
    change_third=(
        "{when} {name} started a {value} diet.", "{name} switched from a {old} diet to a {value} one.",
        "{name} isn't on the {old} diet any longer, {he} eats {value} now.", "There's a new diet for {name}: {value}.",
        "{name} gave up on {old} and went {value} {when}.", "{name} eats {value} these days.",
        "Don't cook {old} for {name} now, {he} is on a {value} diet.", "{name}'s fridge went {value} {when}.",
    ),
    correct=(
        "I said my diet was {old}, I meant {value}.", "Not {old}, {value}! That's how I eat.",
        "I eat {value}, I've never tried a {old} diet.", "Sorry, I got the label wrong, it's {value} and not {old}.",
        "It isn't {old}, what I do is called {value}.",
        "My diet is {value}. I typed {old} because I was reading a menu.",
        "Before anybody cooks: it's {value}, ignore {old}.", "Please forget {old}, I'm on a {value} diet.",
    ),
    prompts=(
        "Is there anything you don't eat?", "What kind of food do you eat these days?",
        "Are you on a diet?", "What should I watch out for when I cook for you?",
    ),
    jokes=(
        "I'm {value} until somebody opens a packet of crisps. Joking.",
        "My sofa and I are strictly {value}. The sofa means it, I don't.",
        "I told the waiter I'm {value} just to see his face. Not true, of course.",
        "I'll go {value} the day pigs open a bakery. Ha.",
    ),
    asks={
        "now": (
            "What diet is {name} on now?", "How does {name} eat these days?",
            "Which diet does {name} keep to at present?", "What kind of diet is {name}'s now?",
            "What does a cook have to remember about {name}'s diet today?",
            "What type of food fills {name}'s fridge at the moment?",
            "What way of eating has {name} settled on now?", "What is {name}'s current diet?",
        ),
        "then": (
            "What diet was {name} on {when}?", "How did {name} eat {when}?",
            "Which diet did {name} keep to {when}?", "What kind of diet was {name}'s {when}?",
            "What did a cook have to remember about {name}'s diet {when}?",
            "What type of food filled {name}'s fridge {when}?",
            "What way of eating did {name} follow {when}?", "What was {name}'s diet {when}?",
        ),
    },
)
_EXERCISE: Final = Relation(
    name="exercise", kind="state", values="gym",
    first=(
        "I go to {value} twice a week.", "My way of keeping fit is {value}.",
        "I do {value}, and I'm sore in places I didn't know about.", "For exercise I do {value}.",
        "It's {value} that keeps me in shape.", "You'd find me at {value} after work.",
        "I'm signed up for {value}, the trainer is merciless.", "{value} is how I sweat these days.",
    ),
    third=(
        "{name} goes to {value} twice a week.", "{name} keeps fit with {value}.",
        "For exercise {name} does {value}.", "{name} is signed up for {value}.",
        "It's {value} that keeps {name} in shape.", "After work you'd find {name} at {value}.",
        "{name} swears by {value}, that's {his} exercise.", "{name}'s way of sweating is {value}.",
    ),
    hearsay=(
        "I think {name} goes to {value}.", "Someone saw {name} at {value}, I believe.",
        "Isn't {name} doing {value} to keep fit?", "Apparently {name} keeps in shape with {value}.",
        "I heard {name} is signed up for {value}.", "Supposedly {name} does {value} twice a week.",
        "If I got it right, {value} is {name}'s exercise.", "They say {name} goes to {value} after work.",
    ),
    change=(
        "I've swapped {old} for {value}.", "{when} I started going to {value}.",
        "I don't do {old} any more, I go to {value} now.", "New exercise: {value}.",
        "{value} is how I keep fit now, I began {when}.", "I got bored of {old}, so it's {value} for me now.",
        "These days I go to {value} for exercise.", "{when} I left {old} and signed up for {value}.",
    ),
    change_third=(
        "{name} has swapped {old} for {value}.", "{when} {name} started going to {value}.",
        "{name} doesn't do {old} any more, {he} goes to {value} now.", "{name} keeps fit with {value} now.",
        "{name} got bored of {old} and goes to {value} now.", "{name}'s new exercise is {value}.",
        "{when} {name} signed up for {value}.", "It's {value} for {name} these days and no longer {old}.",
    ),
    correct=(
        "I said I do {old}, I meant {value}.", "Not {old}, {value}. That's my exercise.",
        "I go to {value}, I don't know why I wrote {old}.",
        "Sorry, I can't tell them apart yet: it's {value} and not {old}.",
        "I've never done {old}. What I go to is {value}.", "Please forget {old}, it's {value} that I do.",
        "The class I go to is {value}, {old} is in the room next door.",
        "My keyboard said {old}, my legs say {value}. That's what I do.",
    ),
    prompts=(
        "How do you keep fit?", "Are you doing any exercise?",
        "Do you go to any classes?", "Why are you so sore?",
    ),
    asks={
        "now": (
            "How does {name} keep fit now?", "What does {name} do for exercise these days?",
            "Which class does {name} go to at present?", "What is {name}'s current form of exercise?",
            "What exercise is {name} signed up for now?", "What keeps {name} in shape at the moment?",
            "Where would you find {name} exercising today?", "What kind of exercise does {name} do currently?",
        ),
        "then": (
            "How did {name} keep fit {when}?", "What did {name} do for exercise {when}?",
            "Which class did {name} go to {when}?", "What was {name}'s form of exercise {when}?",
            "What exercise was {name} signed up for {when}?", "What kept {name} in shape {when}?",
            "What kind of exercise did {name} do {when}?", "How was {name} working up a sweat {when}?",
        ),
    },
)
_SPORT: Final = Relation(
    name="sport", kind="state", values="sports",
    first=(
        "I play {value}.", "My sport is {value}.",
        "I'm in a {value} team, second division of nothing.", "You'll find me playing {value} at weekends.",
        "I've got bruises from {value}, it's what I play.", "It's {value} for me, twice a week.",
        "If I had to pick a sport it'd be {value}, that's what I play.",
        "My kit bag smells of {value}, I play every week.",
    ),
    third=(
        "{name} plays {value}.", "{name}'s sport is {value}.",
        "{name} is in a {value} team.", "At weekends you'll find {name} playing {value}.",
        "Those bruises of {name}'s are from {value}, {he} plays it.", "It's {value} that {name} plays, twice a week.",
        "{name} trains for {value} and never misses a session.",
        "Ask {name} to explain the rules of {value}, {he} plays it.",
    ),
    hearsay=(
        "I heard {name} plays {value}.", "Isn't {name} in a {value} team?",
        "Someone mentioned that {name}'s sport is {value}.", "Supposedly {name} plays {value} twice a week.",
        "I think it's {value} that {name} plays.", "They say {name} is rather good at {value}, that's {his} sport.",
        "Apparently {name} got those bruises from playing {value}.", "If I remember right, {name} trains for {value}.",
    ),
    change=(
        "{when} I switched to {value}.", "I've stopped playing {old}, my sport is {value} now.",
        "I play {value} now, new team and all.", "No more {old} for me, it's {value} these days.",
        "New sport: {value}.", "I left the {old} team and joined a {value} one {when}.",
        "After a few injuries I gave up {old} and play {value} now.",
        "I found a {value} team {when} and that's my sport now.",
    ),
    change_third=(
        "{when} {name} switched to {value}.", "{name} has stopped playing {old}, the sport is {value} now.",
        "{name} plays {value} now.", "{name} left the {old} team and joined a {value} one.",
        "{name}'s new sport is {value}.", "{name} found a {value} team {when} and gave up {old}.",
        "No more {old} for {name}, it's {value} these days.", "{name} joined a {value} team {when}.",
    ),
    correct=(
        "I said I play {old}, it's {value}.", "Not {old}, {value}. That's my sport.",
        "I play {value}, I couldn't tell you the rules of {old}.",
        "Sorry, wrong ball, it's {value} and not {old} that I play.",
        "Please forget {old}, my sport is {value}.", "I wrote {old} because it was on telly. I play {value}.",
        "My team is a {value} team, not a {old} team.", "It's {value} I play. As for {old}, I've never tried it.",
    ),
    prompts=(
        "Do you play any sport?", "How's the training?",
        "Where did you get those bruises?", "Are you still in a team?",
    ),
    jokes=(
        "I'm the secret star of {value}. So secret that I've never played.",
        "They named a {value} stadium after me. They didn't, obviously.",
        "My knees hear the word {value} and hide. I'm kidding, I've never tried it.",
        "I coach {value} for squirrels. Ha, imagine.",
    ),
    asks={
        "now": (
            "Which sport does {name} play now?", "What is {name}'s sport these days?",
            "In what kind of sports team is {name} at present?", "What sport does {name} train for now?",
            "What is the current sport of {name}?", "What would you see {name} playing today, in sport?",
            "Which sport is {name} active in at the moment?", "What game of sport does {name} play now?",
        ),
        "then": (
            "Which sport did {name} play {when}?", "What was {name}'s sport {when}?",
            "In what kind of sports team was {name} {when}?", "What sport did {name} train for {when}?",
            "Which sport was {name} active in {when}?", "What would you have seen {name} playing {when}, in sport?",
            "What did {name} play {when}, as {his} sport?", "What game of sport was {name}'s {when}?",
        ),
    },
)
_FEARS: Final = Relation(
    name="fears", kind="set", values="fears", tone="bad",
    first=(
        "I've got a fear of {value}, don't laugh.", "I'm terrified of {value}.",
        "{value} scares me stiff.", "I'd do anything to avoid {value}. Pure fear.",
        "You know what gives me nightmares? {value}.", "I noticed {when} that I'm afraid of {value}.",
        "Ever since a bad experience {when} I've been scared of {value}.",
        "I go pale at the mere thought of {value}, I'm that frightened.",
    ),
    third=(
        "{name} is terrified of {value}.", "{name} has a fear of {value}.",
        "{name} goes pale at the mere thought of {value}, {he} is that frightened.", "{value} scares {name} stiff.",
        "Don't tease {name}, {he} is really afraid of {value}.",
        "Since a bad experience {when} {name} has been scared of {value}.",
        "{when} {name} found out that {he} is afraid of {value}.",
        "{name} would do anything to avoid {value}, it's a real fear.",
    ),
    hearsay=(
        "I think {name} is afraid of {value}.", "Somebody said {name} has a fear of {value}.",
        "Isn't {name} scared of {value}?", "I heard that {name} has nightmares about {value}.",
        "Supposedly {name} goes pale because of {value}.",
        "They say {name} is terrified of {value}, though {he} hides it.",
        "If I understood right, {value} frightens {name}.",
        "Apparently {name} would cross the street because of {value}.",
    ),
    remove=(
        "I've got over my fear of {value}.", "I'm not afraid of {value} any more.",
        "The therapy worked, {value} doesn't scare me now.", "I faced {value} and the fear is gone.",
        "{value}? No problem these days, I've beaten that fear.", "I've finally lost my fear of {value}.",
        "I used to be scared of {value}, that's over.", "You'd be proud, I'm cured of my fear of {value}.",
    ),
    remove_third=(
        "{name} got over {his} fear of {value}.", "{name} isn't afraid of {value} any more.",
        "{value} doesn't scare {name} now.", "{name} faced {value} and lost the fear.",
        "The therapy helped, {name} is cured of the fear of {value}.",
        "{name} used to be scared of {value}, but that's over.",
        "{name} has beaten {his} fear of {value}.", "These days {name} has no problem with {value}.",
    ),
    prompts=(
        "What are you afraid of?", "What scares you?",
        "What gives you nightmares?", "Is there something that makes you run?",
    ),
    asks={
        "now": (
            "What is {name} afraid of now?", "Which fears does {name} have at present?",
            "What scares {name} these days?", "Of what is {name} terrified now?",
            "Name everything that {name} still fears.", "What gives {name} nightmares at the moment?",
            "What frightens {name} today?", "Which fears has {name} not got over?",
        ),
        "count": (
            "How many fears does {name} have now?", "Of how many things is {name} afraid at present?",
            "What is the number of {name}'s fears?", "How many things scare {name} these days?",
            "How many fears has {name} still got?", "How many things is {name} terrified of now?",
            "Counting them all, how many fears does {name} have?", "How many things frighten {name} at the moment?",
        ),
    },
)
_TATTOO: Final = Relation(
    name="tattoo", kind="event", values="tattoos",
    first=(
        "I got a tattoo of {a_value} {when}.", "{when} I had {a_value} tattooed on my arm.",
        "Don't tell my mother, I've got {a_value} on my shoulder, inked {when}.",
        "It hurt, but I have a tattoo now. It's {a_value}, done {when}.",
        "I went under the needle {when} and came out with {a_value}.",
        "{when} I walked in and asked for a tattoo of {a_value}.",
        "My skin is sore, I've had {a_value} tattooed, that was {when}.",
        "I did it {when}: a tattoo, {a_value}, no bigger than a coin.",
    ),
    third=(
        "{name} got a tattoo of {a_value} {when}.", "{when} {name} had {a_value} tattooed.",
        "{name} has a new tattoo, {a_value}, since {he} went there {when}.",
        "Don't tell anybody, {name} got {a_value} inked on {his} shoulder {when}.",
        "{name} went under the needle {when} and came out with {a_value}.",
        "Have you seen {name}'s tattoo of {a_value}? It was done {when}.",
        "{when} {name} asked for a tattoo of {a_value} and got it.",
        "{name} got {a_value} tattooed {when}, and the skin is still sore.",
    ),
    hearsay=(
        "I heard {name} got a tattoo of {a_value} {when}.",
        "Someone saw {a_value} on {name}'s arm, inked {when}, they think.",
        "Apparently {when} {name} had {a_value} tattooed.", "Didn't {name} get {a_value} tattooed {when}?",
        "They say {name} went under the needle {when} and got {a_value}.",
        "I think {name} has a tattoo now, {a_value} or so, done {when}.",
        "Supposedly {when} {name} got inked with {a_value}.",
        "If the photo is real, {name} had {a_value} tattooed {when}.",
    ),
    correct=(
        "I said my tattoo was {a_old}, it's {a_value}.", "Not {a_old}, {a_value}. That's what I had tattooed.",
        "The tattoo is {a_value}, {a_old} was only the first sketch.",
        "Sorry, it's {a_value} and not {a_old}, the tattoo that I got.",
        "I never got {a_old}, I meant {a_value}.", "It does look like {a_old}, but the tattoo is {a_value}.",
        "I wrote {a_old}, my arm says {a_value}.", "Correction, the tattoo shows {a_value}, never {a_old}.",
    ),
    prompts=(
        "What's under that plaster?", "Did you do anything crazy?",
        "Did you really get inked?", "What have you done to your arm?",
    ),
    asks={
        "then": (
            "What did {name} have tattooed {when}?", "Which tattoo did {name} get {when}?",
            "What was the tattoo of that {name} got {when}?", "What was inked on {name} {when}?",
            "Which picture did the needle leave on {name} {when}?", "What motif did {name} choose for a tattoo {when}?",
            "When {name} went to be tattooed {when}, what did {he} get?", "What tattoo was done on {name} {when}?",
        ),
        "when": (
            "When did {name} get the tattoo of {a_value}?", "On what day was {a_value} tattooed on {name}?",
            "When did {name} have {a_value} tattooed?", "What was the date of {name}'s {value} tattoo?",
            "When did {name} get inked with {a_value}?", "What day did {name} get {his} {value} tattoo?",
            "When was it that {name} got {a_value} tattooed?", "When was the {value} tattoo of {name} done?",
        ),
        "order": (
            "Which tattoo did {name} get first, the {value} or the {other}?",
            "Did {name} have the {value} or the {other} tattooed first?",
            "Which tattoo of {name}'s came first: the {value} or the {other}?",
            "What did {name} get inked earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which tattoo is older on {name}?",
            "Was it the {value} or the {other} that {name} had done first?",
            "Between the {value} and the {other}, which did {name} get earlier as a tattoo?",
            "Which is {name}'s earlier tattoo, the {value} or the {other}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _DIET,
    _EXERCISE,
    _SPORT,
    _FEARS,
    _TATTOO,
)
"""Diet, exercise, sport, fears and tattoos."""
