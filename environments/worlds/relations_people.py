"""Family, told by the people themselves and by others."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import PEOPLE, Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_SISTER: Final = Relation(
    name="sister", kind="bond", values=PEOPLE, role="sister", gender="she",
    first=(
        "My sister is called {value}.", "{value} is my sister, you two would get along.",
        "I grew up sharing a room with my sister {value}.", "My sister's name is {value}, by the way.",
        "You haven't met my sister {value} yet, have you?", "I've got a sister, {value}, and she steals my jumpers.",
        "My sister {value} says hello.", "That loud laugh in the background is my sister {value}.",
    ),
    third=(
        "{name}'s sister is called {value}.", "{name} has a sister, {value}.",
        "{value} is {name}'s sister.", "Did you know that {value} and {name} are family? She's the sister.",
        "{name} grew up with a sister named {value}.", "I met {name}'s sister, her name is {value}.",
        "The sister of {name} is {value}, I sat next to her once.", "{name} was on the phone to {his} sister {value}.",
    ),
    prompts=(
        "Have you got any siblings?", "How's your family?",
        "Do you have a sister?", "Who was that you were laughing with?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s sister?", "Who is {name}'s sister?",
            "What is {name}'s sister called?", "Which name does {name}'s sister have?",
            "What does {name}'s sister go by?", "Which woman is {name}'s sister?",
            "Who is the sister that {name} has?", "Do you know the name of the sister of {name}?",
        ),
    },
)
_BROTHER: Final = Relation(
    name="brother", kind="bond", values=PEOPLE, role="brother", gender="he",
    first=(
        "My brother is called {value}.", "I have a brother, {value}, who never does the dishes.",
        "{value} is my brother, in case you mix up the names.", "My brother's name is {value}.",
        "That was my brother {value} on the phone just now.",
        "I share most of my childhood scars with my brother {value}.",
        "You'd like my brother {value}.", "The one who taught me to whistle was my brother, {value}.",
    ),
    third=(
        "{name}'s brother is called {value}.", "{name} has a brother by the name of {value}.",
        "{value} is the brother of {name}.", "You remember {value}, don't you? He's {name}'s brother.",
        "I ran into {name}'s brother {value} at the station.", "The brother {name} keeps talking about is {value}.",
        "{name} learnt to swim from {his} brother {value}.", "Of course {name} has a brother, that's {value}.",
    ),
    prompts=(
        "Do you have a brother?", "Any siblings, you?",
        "Tell me about your family?", "Who did you share a room with as a child?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s brother?", "Who is {name}'s brother?",
            "What is {name}'s brother called?", "Which name does {name}'s brother go by?",
            "Who is the brother of {name}?", "By what name do we know {name}'s brother?",
            "Can you name the brother that {name} has?", "What do people call {name}'s brother?",
        ),
    },
)
_COUSIN: Final = Relation(
    name="cousin", kind="bond", values=PEOPLE, role="cousin",
    first=(
        "My cousin is called {value}.", "{value} is a cousin of mine, the only one I've got.",
        "I've got one cousin, {value}.", "My cousin {value} and I used to build dens.",
        "Say hi to my cousin {value} if you see each other.", "There's just one cousin on my side, and that's {value}.",
        "My cousin's name? {value}.", "At weddings I always end up next to my cousin {value}.",
    ),
    third=(
        "{name}'s cousin is called {value}.", "{name} has a cousin, {value}.",
        "{value} is {name}'s cousin, on the mother's side.", "Small world, {value} is the cousin of {name}.",
        "{name} spent every childhood summer with {his} cousin {value}.",
        "If you meet {value}, that's {name}'s cousin.",
        "The name of {name}'s cousin is {value}.", "{name} and {value} share a grandmother, they're cousins.",
    ),
    prompts=(
        "Do you have a big family?", "Any cousins?",
        "Who's coming to the family do?", "Are you close to your relatives?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s cousin?", "Who is {name}'s cousin?",
            "What is {name}'s cousin called?", "Which person is the cousin of {name}?",
            "Can you name {name}'s cousin?", "What does {name}'s cousin go by?",
            "Who is the cousin that {name} has?", "What name does {name}'s cousin have?",
        ),
    },
)
_AUNT: Final = Relation(
    name="aunt", kind="bond", values=PEOPLE, role="aunt", gender="she",
    first=(
        "My aunt is called {value}.", "I've got an aunt named {value}.",
        "{value} is my aunt, the one with the hats.", "My aunt {value} sends me socks every year.",
        "When I was little I stayed with my aunt {value}.", "My mother's sister, so my aunt, is {value}.",
        "Aunt {value} is what I call her, she's my favourite relative.", "My aunt's name is {value}.",
    ),
    third=(
        "{name}'s aunt is called {value}.", "{name} has an aunt named {value}.",
        "{value} is {name}'s aunt.", "The woman with the hats is {value}, the aunt of {name}.",
        "{name} always visits {his} aunt {value} at the end of the year.",
        "You've heard of {value}, that's {name}'s aunt.",
        "{name} got socks again from {his} aunt {value}.", "The aunt {name} stayed with as a child is {value}.",
    ),
    prompts=(
        "Do you see your relatives much?", "Have you got an aunt?",
        "Who in your family are you close to?", "Who sent you those socks?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s aunt?", "Who is {name}'s aunt?",
            "What is {name}'s aunt called?", "Which woman is the aunt of {name}?",
            "Can you name {name}'s aunt?", "Who is the aunt that {name} has?",
            "What name does the aunt of {name} bear?", "What is the first name of {name}'s aunt?",
        ),
    },
)
_UNCLE: Final = Relation(
    name="uncle", kind="bond", values=PEOPLE, role="uncle", gender="he",
    first=(
        "My uncle is called {value}.", "{value} is my uncle, the one who can wiggle his ears.",
        "I have an uncle, {value}.", "My uncle {value} taught me how to ride a bike.",
        "My uncle's name is {value}.", "Every family has an odd one, ours is my uncle {value}.",
        "You should hear the stories of my uncle {value}.", "There's my uncle {value} in the photo, on the left.",
    ),
    third=(
        "{name}'s uncle is called {value}.", "{name} has an uncle, and his name is {value}.",
        "{value} is the uncle of {name}.", "{name} is fond of {his} uncle {value}.",
        "The man in {name}'s photo is {value}, the uncle.",
        "It was {value} who taught {name} to ride a bike, he's the uncle.",
        "Do you know {value}? He's {name}'s uncle.", "Uncle {value}, that's what {name} calls him.",
    ),
    prompts=(
        "Who's that in the photo?", "Have you got an uncle?",
        "Who taught you to ride a bike?", "Any odd relatives in your family?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s uncle?", "Who is {name}'s uncle?",
            "What is {name}'s uncle called?", "Which man is the uncle of {name}?",
            "Can you name the uncle of {name}?", "Who is the uncle that {name} has?",
            "By what name does {name}'s uncle go?", "What should one call {name}'s uncle?",
        ),
    },
)
_NIECE: Final = Relation(
    name="niece", kind="bond", values=PEOPLE, role="niece", gender="she",
    first=(
        "My niece is called {value}.", "I have a niece, {value}, and she beats me at everything.",
        "{value} is my niece, and she's the boss.", "I'm an adoring relative of my niece {value}.",
        "My niece's name is {value}.", "The drawing on my fridge is by my niece {value}.",
        "I'm babysitting my niece {value} again.", "You'd melt if you met my niece {value}.",
    ),
    third=(
        "{name}'s niece is called {value}.", "{name} has a niece named {value}.",
        "{value} is {name}'s niece.", "The drawing on {name}'s fridge is by {value}, the niece.",
        "{name} is babysitting {his} niece {value} again.", "Have you met {value}? She's the niece of {name}.",
        "{name} would do anything for {his} niece {value}.", "The niece {name} always talks about is {value}.",
    ),
    prompts=(
        "Who drew that picture?", "Are there any children in the family?",
        "Have you got a niece?", "Who are you babysitting?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s niece?", "Who is {name}'s niece?",
            "What is {name}'s niece called?", "Which name does {name}'s niece have?",
            "Can you name {name}'s niece?", "Who is the niece that {name} has?",
            "Which girl is the niece of {name}?", "What does {name} call {his} niece?",
        ),
    },
)
_NEPHEW: Final = Relation(
    name="nephew", kind="bond", values=PEOPLE, role="nephew", gender="he",
    first=(
        "My nephew is called {value}.", "I've a nephew, {value}, and he's taller than me already.",
        "{value} is my nephew.", "My nephew's name is {value}.",
        "I'm teaching my nephew {value} to swim.", "The one with the muddy shoes is my nephew {value}.",
        "I've promised my nephew {value} an ice cream, so I'm bound by law.",
        "My sister-in-law's boy, my nephew, is {value}.",
    ),
    third=(
        "{name}'s nephew is called {value}.", "{name} has a nephew, {value}.",
        "{value} is the nephew of {name}.", "{name} is teaching {his} nephew {value} to swim.",
        "That tall lad is {value}, {name}'s nephew.",
        "Ask {name} about {his} nephew {value}, you'll be there all night.",
        "The nephew of {name} goes by {value}.", "You've seen {value}, he's {name}'s nephew.",
    ),
    prompts=(
        "Who's the tall lad?", "Have you got a nephew?",
        "Who are you taking to the pool?", "How are the kids in your family?",
    ),
    asks={
        "now": (
            "What is the name of {name}'s nephew?", "Who is {name}'s nephew?",
            "What is {name}'s nephew called?", "Which boy is the nephew of {name}?",
            "Can you name {name}'s nephew?", "Who is the nephew that {name} has?",
            "By what name does {name}'s nephew go?", "What does {name} call {his} nephew?",
        ),
    },
)
_PARTNER: Final = Relation(
    name="partner", kind="bond", values=PEOPLE, role="partner",
    first=(
        "I'm going out with {value}.", "My partner is called {value}.",
        "{value} and I are together.", "I'm seeing someone. It's {value}, and yes, I'm smiling.",
        "My partner's name is {value}.", "You should meet {value}, my partner.",
        "{value} is my other half.", "My partner {value} sends regards.",
    ),
    third=(
        "{name} is going out with {value}.", "{name}'s partner is called {value}.",
        "{name} and {value} are a couple.", "{value} is {name}'s partner.",
        "The partner of {name} is {value}, they look happy.", "{name} brought {his} partner {value} along.",
        "It's {value} that {name} is together with.", "{name} has a partner, and that's {value}.",
    ),
    prompts=(
        "Are you seeing anybody?", "How's your love life?",
        "Is there somebody special?", "Who's putting that smile on your face?",
    ),
    asks={
        "now": (
            "Who is {name}'s partner?", "What is the name of {name}'s partner?",
            "Who is {name} going out with?", "With whom is {name} together?",
            "What is {name}'s partner called?", "Who is {name}'s other half?",
            "Which person forms a couple with {name}?", "Can you name {name}'s partner?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _SISTER,
    _BROTHER,
    _COUSIN,
    _AUNT,
    _UNCLE,
    _NIECE,
    _NEPHEW,
    _PARTNER,
)
"""Family, told by the people themselves and by others."""
