"""What people like best to hear, to watch and to cheer."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_FAVOURITE_MUSIC: Final = Relation(
    name="favourite_music", kind="preference", values="music",
    first=(
        "I listen to {value} more than anything.", "My favourite kind of music is {value}.",
        "{value} is my music, loud and all day.", "Whenever I can choose the music, it's {value}.",
        "There's nothing I'd rather hear than {value}.", "I'm a {value} person through and through.",
        "If you hear {value} through the wall, that's me, it's my favourite.",
        "When it comes to music I like {value} best.",
    ),
    third=(
        "{name} listens to {value} more than anything.", "{name}'s favourite kind of music is {value}.",
        "When {name} gets to choose the music, it's {value}.", "{name} is a {value} person.",
        "When it comes to music {name} likes {value} best.", "There's nothing {name} would rather hear than {value}.",
        "That {value} through the wall is {name}, it's {his} favourite music.",
        "{value} is the music {name} loves most.",
    ),
    hearsay=(
        "I heard that {name} loves {value} most, as music goes.", "Isn't {value} the favourite music of {name}?",
        "Apparently {name} listens to {value} more than anything.", "They say {name} is a {value} person.",
        "I think {name} likes {value} best, judging by the noise.",
        "Someone said that nothing beats {value} for {name}.",
        "If I'm right, {name}'s favourite music is {value}.", "Supposedly it's {value} when {name} gets to choose.",
    ),
    change=(
        "I've gone off {old}, I listen mostly to {value} now.",
        "{when} I discovered {value} and it's my favourite music now.",
        "My favourite music is {value} these days.",
        "From {old} to {value}, that's my year in music. I like it best now.",
        "Since that concert {when} I'm a {value} person.", "I'd rather hear {value} than anything now, even {old}.",
        "New soundtrack to my life: {value}.", "It's official, {value} is my favourite now. Sorry, {old}.",
    ),
    change_third=(
        "{name} has gone off {old} and listens mostly to {value} now.",
        "{when} {name} discovered {value} and likes it best now.",
        "{name}'s favourite music is {value} these days.",
        "{name} used to be all about {old}, but {he} loves {value} most now.",
        "Since that concert {when} {name} is a {value} person.",
        "You'll hear {value} from {name}'s window now and no more {old}.",
        "There's a new favourite kind of music for {name}, {value}.",
        "When {name} chooses the music now, it's {value}.",
    ),
    correct=(
        "I said I like {old} best, I meant {value}.", "Not {old}! {value} is my favourite music.",
        "My favourite is {value}, I don't even own a {old} record.",
        "Sorry, it's {value} I listen to most, {old} was a slip.",
        "I mistyped, {old} isn't my music, {value} is.",
        "Let me set the record straight: {value}, not {old}, is what I like best.",
        "When I wrote {old}, I was listening to it in a shop. {value} is my music.",
        "Please forget that I said {old}. It's {value} above all for me.",
    ),
    prompts=(
        "What are you listening to?", "What's your favourite kind of music?",
        "What should I put on?", "What's that noise in the background?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite kind of music now?", "Which music does {name} like best these days?",
            "What does {name} listen to most at present?", "What kind of music does {name} prefer now?",
            "Which style of music is {name}'s current favourite?",
            "What would {name} put on if {he} could choose today?",
            "What music does {name} love most at the moment?", "Which musical style comes first for {name} now?",
        ),
        "then": (
            "What was {name}'s favourite kind of music {when}?", "Which music did {name} like best {when}?",
            "What did {name} listen to most {when}?", "What kind of music did {name} prefer {when}?",
            "Which style of music was {name}'s favourite {when}?", "What music did {name} love most {when}?",
            "What would {name} have put on {when}, given the choice?",
            "Which musical style came first for {name} {when}?",
        ),
    },
)
_FAVOURITE_SHOW: Final = Relation(
    name="favourite_show", kind="preference", values="shows",
    first=(
        'My favourite show is "{value}".', "I'm obsessed with \"{value}\", best thing on television.",
        "Don't ring me while \"{value}\" is on, it's my favourite show.",
        'Of everything on telly I like "{value}" best.',
        '"{value}" is the show I love most.', "I've seen every episode of \"{value}\", my favourite series.",
        'If you only watch one series, take my favourite, "{value}".',
        'My evenings belong to "{value}", nothing else comes close.',
    ),
    third=(
        "{name}'s favourite show is \"{value}\".",
        '{name} is obsessed with "{value}", the best thing on television in {his} eyes.',
        "Don't ring {name} while \"{value}\" is on, it's {his} favourite.",
        '{name} has seen every episode of "{value}", {his} favourite series.',
        'Of everything on telly {name} likes "{value}" best.', '"{value}" is the show {name} loves most.',
        '{name} keeps quoting {his} favourite show, "{value}".', 'No series comes close to "{value}" for {name}.',
    ),
    hearsay=(
        "I think {name}'s favourite show is \"{value}\".", 'Someone said {name} likes "{value}" best of all series.',
        "Isn't \"{value}\" the show {name} is obsessed with?",
        'I heard {name} loves "{value}" more than anything on telly.',
        'Supposedly {name} never misses "{value}", the favourite.',
        "If I have it right, \"{value}\" is {name}'s favourite series.",
        'They say no show comes close to "{value}" for {name}.', 'My sources tell me that {name} likes "{value}" most.',
    ),
    change=(
        "I've finished with \"{old}\", my favourite show is \"{value}\" now.",
        "{when} I started on \"{value}\" and it's my favourite now.",
        'New favourite show: "{value}".', '"{old}" went downhill, I like "{value}" best now.',
        'I watched the first episode {when} and "{value}" is my favourite show now.',
        'These days the best thing on telly is "{value}" for me, better than "{old}".',
        "I never thought I'd drop \"{old}\", but \"{value}\" is my favourite now.",
        'I love "{value}" more than any other show now.',
    ),
    change_third=(
        "{when} {name} started on \"{value}\", and it's {his} favourite now.",
        '{name} has finished with "{old}", the favourite show is "{value}" now.',
        "{name}'s new favourite show is \"{value}\".",
        '{name} thinks "{old}" went downhill and likes "{value}" best now.',
        'These days {name} loves "{value}" more than any other series.',
        "Since {he} saw it {when} {name}'s favourite has been \"{value}\".",
        "For {name} it's \"{value}\" now and no longer \"{old}\".",
        'Talk to {name} about "{value}", {his} favourite show these days.',
    ),
    correct=(
        'I said my favourite show is "{old}", I meant "{value}".', "Not \"{old}\", \"{value}\"! That's the one I love.",
        "\"{value}\" is my favourite, I've never even seen \"{old}\".",
        'Sorry, I mixed up two shows: I love "{value}", not "{old}".',
        "It's \"{value}\" that I like best. Scrap \"{old}\".", "My favourite series isn't \"{old}\", it's \"{value}\".",
        'I wrote "{old}" because the advert was on. My favourite is "{value}".',
        'Wrong title! For "{old}" read "{value}", my favourite show.',
    ),
    prompts=(
        "What are you watching?", "What's your favourite show at the moment?",
        "What should I watch next?", "What's the best thing on telly?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite show now?", "Which series does {name} like best these days?",
            "What show does {name} love most at present?", "Which programme is {name}'s current favourite?",
            "What is the best thing on television for {name} now?", "Which show is {name} obsessed with at the moment?",
            "What series does {name} prefer to all others today?", "Which show would {name} never miss now?",
        ),
        "then": (
            "What was {name}'s favourite show {when}?", "Which series did {name} like best {when}?",
            "What show did {name} love most {when}?", "Which programme was {name}'s favourite {when}?",
            "What was the best thing on television for {name} {when}?", "Which show was {name} obsessed with {when}?",
            "What series did {name} prefer to all others {when}?", "Which show would {name} never have missed {when}?",
        ),
    },
)
_FAVOURITE_SONG: Final = Relation(
    name="favourite_song", kind="preference", values="songs",
    first=(
        'My favourite song is "{value}".', "I can't stop humming \"{value}\", I love it more than any other song.",
        '"{value}" is the best song ever written, if you ask me.',
        "If they play \"{value}\" I'm on the dance floor. My favourite!",
        'You know the one song I never skip? "{value}".', "Of all the songs in the world I'd keep \"{value}\".",
        "Put \"{value}\" on and I'm happy, there's no song I like better.",
        'The song that means most to me is "{value}".',
    ),
    third=(
        "{name}'s favourite song is \"{value}\".",
        '{name} never skips "{value}", {he} loves it more than any other song.',
        "If they play \"{value}\", {name} is on the dance floor, it's {his} favourite.",
        'Of all the songs in the world {name} would keep "{value}".',
        "{name} hums \"{value}\" all day, that's the favourite.",
        'According to {name}, "{value}" is the best song ever written.',
        'The song that means most to {name} is "{value}".', "There's no song {name} likes better than \"{value}\".",
    ),
    hearsay=(
        "I think {name}'s favourite song is \"{value}\".", 'Someone heard {name} call "{value}" the best song ever.',
        "Isn't \"{value}\" the song {name} loves most?", 'Supposedly {name} wants "{value}" played at every party.',
        'If I remember right, {name} likes "{value}" better than any song.',
        "They say {name} hums \"{value}\" in {his} sleep, that's how much {he} loves it.",
        "I was told that {name}'s favourite is \"{value}\".",
        'It might be "{value}" that {name} likes best of all songs.',
    ),
    change=(
        "{when} I heard \"{value}\", and it's my favourite song now.",
        "My favourite song is \"{value}\" now, I've worn out \"{old}\".",
        "I can't hear \"{old}\" any more, I love \"{value}\" most now.", 'New favourite song: "{value}".',
        'These days the song I never skip is "{value}".',
        'My favourite song since I heard it {when} has been "{value}".',
        '"{value}" has pushed "{old}" off the top of my list.',
        'I fell in love with another song {when}, "{value}", the best of all.',
    ),
    change_third=(
        "{name}'s favourite song is \"{value}\" now, {he} has worn out \"{old}\".",
        '{when} {name} heard "{value}" and likes it best now.',
        "{name} can't stand \"{old}\" any more, the favourite song is \"{value}\".",
        '{name} has a new favourite song, "{value}".',
        'These days {name} never skips "{value}", {he} loves it most.',
        "\"{value}\" has pushed \"{old}\" off the top of {name}'s list.",
        '{name} fell for another song {when}, "{value}", the best of all for {him}.',
        'The song {name} loves most now is "{value}".',
    ),
    correct=(
        'I said my favourite song is "{old}", I meant "{value}".', "Not \"{old}\", \"{value}\". That's the song.",
        '"{value}" is what I love, I mixed up the titles, never "{old}".',
        "Sorry, I can't stand \"{old}\", my favourite is \"{value}\".",
        "It's \"{value}\" that I like best. \"{old}\" is from the same record.",
        "Please swap the titles, \"{value}\" is my favourite and \"{old}\" isn't.",
        'I wrote "{old}" because the radio was on. My favourite song is "{value}".',
        "My favourite was never \"{old}\". It's \"{value}\", with all my heart.",
    ),
    prompts=(
        "What's your favourite song?", "Which song should we play at the party?",
        "What are you humming?", "Which song do you never skip?",
    ),
    asks={
        "now": (
            "What is {name}'s favourite song now?", "Which song does {name} love most these days?",
            "What song does {name} like best at present?", "Which song would {name} never skip now?",
            "What is the best song ever in {name}'s eyes today?",
            "To which song would {name} run onto the dance floor now?",
            "Which song is the current favourite of {name}?", "Of all songs, which would {name} keep at the moment?",
        ),
        "then": (
            "What was {name}'s favourite song {when}?", "Which song did {name} love most {when}?",
            "What song did {name} like best {when}?", "Which song would {name} never have skipped {when}?",
            "What was the best song ever in {name}'s eyes {when}?",
            "To which song would {name} have run onto the dance floor {when}?",
            "Which song was the favourite of {name} {when}?", "Of all songs, which would {name} have kept {when}?",
        ),
    },
)
_TEAM: Final = Relation(
    name="team", kind="preference", values="teams",
    first=(
        "I support the {value}.", "I've been a fan of the {value} since school.",
        "My team is the {value}, for my sins.", "I bleed the colours of the {value}.",
        "When the {value} lose, don't talk to me. That's my team.",
        "I've got the scarf, the mug and the socks of the {value}.",
        "I cheer for the {value}.", "It's the {value} for me, win or lose.",
    ),
    third=(
        "{name} supports the {value}.", "{name} is a fan of the {value}.",
        "{name}'s team is the {value}.", "{name} cheers for the {value}, win or lose.",
        "When the {value} lose, leave {name} alone, that's {his} team.",
        "{name} owns every scarf the {value} ever sold.",
        "It's the {value} that {name} roots for.", "Every match day {name} is out there singing for the {value}.",
    ),
    hearsay=(
        "I think {name} supports the {value}.", "Doesn't {name} cheer for the {value}?",
        "Someone saw {name} in a scarf of the {value}, so that must be the team.",
        "I heard that {name} is a fan of the {value}.",
        "Supposedly it's the {value} that {name} roots for.", "They say {name}'s team is the {value}.",
        "If the shirt is anything to go by, {name} supports the {value}.",
        "I was told that {name} follows the {value}, maybe wrongly.",
    ),
    change=(
        "I've stopped supporting the {old}, my team is the {value} now.",
        "{when} I switched sides, I cheer for the {value}.",
        "Don't hate me: I support the {value} now.", "I've hung up my {old} scarf. It's the {value} for me now.",
        "I went to a match {when} and now I'm a fan of the {value}.", "I gave up on the {old} and follow the {value}.",
        "My team is the {value} these days.", "After another season with the {old} I joined the fans of the {value}.",
    ),
    change_third=(
        "{name} stopped supporting the {old}, the team is the {value} now.",
        "{when} {name} switched sides and cheers for the {value}.",
        "{name} supports the {value} now, can you believe it?",
        "{name} hung up the {old} scarf and follows the {value} now.",
        "Since a match {when} {name} is a fan of the {value}.", "Scandal: {name} left the {old} for the {value}.",
        "{name}'s team is the {value} these days.", "{name} roots for the {value} now and not for the {old}.",
    ),
    correct=(
        "I said I support the {old}, that was a joke of my keyboard. It's the {value}.",
        "Not the {old}, the {value}! That's my team.",
        "I'd never cheer for the {old}, I meant the {value}.",
        "My team is the {value}, I got my birds and beasts mixed up with the {old}.",
        "Sorry, it's the {value} I support and not the {old}.",
        "Please delete the {old} from memory, I'm a fan of the {value}.",
        "Did I write {old}? The {value} are my team.", "The {old} are our rivals! I support the {value}.",
    ),
    prompts=(
        "Who do you support?", "Which team are you for?",
        "Did you watch the match?", "Whose scarf is that?",
    ),
    jokes=(
        "They've retired my shirt at the {value}. For sweat reasons. Kidding!",
        "I'd support the {value} if you paid me in gold, and even then. Joke.",
        "My goldfish could coach the {value}, and so could I. We won't.",
        "Call me when the {value} need a mascot with a bad knee. Joking.",
        "Yes, I'm secretly the captain of the {value}. In my dreams!",
        "If it goes on like this I'll support the {value}. Never!",
        "I'd rather eat my hat than support the {value}, so pass the hat. Ha.",
        "Oh sure, I sleep in {value} pyjamas. As if.",
    ),
    asks={
        "now": (
            "Which team does {name} support now?", "What is {name}'s team at present?",
            "Who does {name} cheer for these days?", "Which team is {name} a fan of now?",
            "For which team does {name} root at the moment?", "What team does {name} follow currently?",
            "Whose scarf would {name} wear on match day now?", "Which side is {name} on today in sport?",
        ),
        "then": (
            "Which team did {name} support {when}?", "What was {name}'s team {when}?",
            "Who did {name} cheer for {when}?", "Which team was {name} a fan of {when}?",
            "For which team did {name} root {when}?", "What team did {name} follow {when}?",
            "Whose scarf would {name} have worn on match day {when}?", "Which side was {name} on {when}, in sport?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _FAVOURITE_MUSIC,
    _FAVOURITE_SHOW,
    _FAVOURITE_SONG,
    _TEAM,
)
"""What people like best to hear, to watch and to cheer."""
