"""Books, films, music and games."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_BOOK: Final = Relation(
    name="book", kind="event", values="books",
    first=(
        'I finished reading "{value}" {when}.', '{when} I read the last page of "{value}".',
        'I stayed up for the end of "{value}" {when}.', '"{value}" is done, I closed it {when}.',
        'I wept on the bus {when}, because I got to the end of "{value}".',
        'You were right about "{value}", I finished it {when}.',
        'It took me ages, but {when} I got through "{value}".', 'I read "{value}" and turned the final page {when}.',
    ),
    third=(
        '{name} finished reading "{value}" {when}.', '{when} {name} read the last page of "{value}".',
        '{name} got through "{value}" {when}.', 'Ask {name} about "{value}", {he} finished it {when}.',
        '{name} stayed up {when} for the end of "{value}".', 'It took {name} ages, but {when} {he} finished "{value}".',
        '"{value}" kept {name} busy until {he} finished it {when}.',
        '{name} was crying on a bench {when}, having just ended "{value}".',
    ),
    hearsay=(
        'I think {name} finished "{value}" {when}.', 'Somebody told me {when} {name} got to the end of "{value}".',
        "Didn't {name} read \"{value}\" and finish it {when}?", 'I heard {name} got through "{value}" {when}.',
        'Supposedly {name} closed "{value}" {when}.', 'They say {name} read the last page of "{value}" {when}.',
        'If I remember, it was "{value}" that {name} finished {when}.',
        'Apparently {when} {name} was done with "{value}".',
    ),
    correct=(
        "I said I'd read \"{old}\", it was \"{value}\".", "Not \"{old}\", \"{value}\". That's the book I finished.",
        'I mixed up the covers: what I read was "{value}" and not "{old}".',
        "Sorry, I haven't opened \"{old}\" yet, I finished \"{value}\".",
        "The book was \"{value}\", I don't know how \"{old}\" got in there.",
        'Wrong title, please swap "{old}" for "{value}".',
        '"{old}" is still on the pile, the one I finished is "{value}".',
        'It was "{value}" that I read, "{old}" only lay next to it.',
    ),
    prompts=(
        "Have you read anything good?", "What have you been reading?",
        "How's the pile by your bed?", "Did you finish that book?",
    ),
    asks={
        "then": (
            "Which book did {name} finish {when}?", "What did {name} finish reading {when}?",
            "The last page of which book did {name} read {when}?", "Which title did {name} get through {when}?",
            "What book was {name} done with {when}?", "Of which book did {name} reach the end {when}?",
            "What had {name} read when {he} closed a book {when}?", "Which novel did {name} end {when}?",
        ),
        "when": (
            'When did {name} finish "{value}"?', 'On what day did {name} read the last page of "{value}"?',
            'When did {name} get to the end of "{value}"?',
            'What was the date on which {name} finished reading "{value}"?',
            'When did {name} close "{value}"?', 'When did {name} get through "{value}"?',
            'What day was {name} done with "{value}"?', 'When was it that {name} finished the book "{value}"?',
        ),
        "count": (
            "How many books has {name} finished?", "How many books did {name} get through in all?",
            "What is the number of books {name} has read so far?", "How many books has {name} told of finishing?",
            "How many books has {name} read from cover to cover?", "In total, how many books did {name} read?",
            "How many titles has {name} finished by now?", "Counting them all, how many books has {name} finished?",
        ),
        "order": (
            'Which book did {name} finish first, "{value}" or "{other}"?',
            'Did {name} read "{value}" or "{other}" first?',
            'Which came first for {name}: "{value}" or "{other}"?',
            'What did {name} finish earlier, "{value}" or "{other}"?',
            'Of "{value}" and "{other}", which did {name} get through first?',
            'Was it "{value}" or "{other}" that {name} read first?',
            'Between the books "{value}" and "{other}", which did {name} end earlier?',
            'Which last page did {name} turn first, that of "{value}" or that of "{other}"?',
        ),
    },
)
_FILM: Final = Relation(
    name="film", kind="event", values="films", company=True,
    first=(
        'I saw "{value}" {when}.', '{when} I went to see "{value}" with {person}.',
        'I watched "{value}" {when} and {person} fell asleep halfway.',
        '"{value}" was on {when}, so {person} and I watched it.',
        'I saw "{value}" {when}, front row, stiff neck.', '{person} dragged me along to "{value}" {when}.',
        '{when} I finally watched "{value}".', 'I cried at "{value}" {when}, {person} pretended not to notice.',
    ),
    third=(
        '{name} saw "{value}" {when}.', '{when} {name} went to see "{value}" with {person}.',
        '{name} watched "{value}" {when} and {person} came along.', '{name} finally saw "{value}", that was {when}.',
        '{person} dragged {name} along to "{value}" {when}.', '{when} {name} and {person} watched "{value}".',
        '{name} sat through "{value}" {when}, all of it.',
        '{name} was in the cinema with {person} {when} for "{value}".',
    ),
    hearsay=(
        'I heard {name} saw "{value}" {when}.', 'Someone spotted {name} at "{value}" {when}.',
        "Didn't {name} go and watch \"{value}\" {when}?", 'I think {name} saw "{value}" {when}, and liked it too.',
        'Apparently {when} {name} watched "{value}".', 'They say {name} was at the cinema {when} for "{value}".',
        'Supposedly {when} {name} sat through "{value}".', "If I'm right, it was \"{value}\" that {name} saw {when}.",
    ),
    correct=(
        'I said I saw "{old}", it was "{value}".', 'Not "{old}", "{value}". That was the film.',
        'I confused two posters, I watched "{value}" and not "{old}".',
        "Sorry, I've never seen \"{old}\", it was \"{value}\".",
        'The film I saw is called "{value}", forget "{old}".', '"{old}" was sold out, what I saw was "{value}".',
        'Did I write "{old}"? I sat in "{value}".',
        'Wrong title, it was "{value}" I saw, "{old}" was only in the trailer.',
    ),
    prompts=(
        "Have you seen any good films?", "Been to the cinema lately?",
        "What did you watch?", "Any film you'd recommend?",
    ),
    asks={
        "then": (
            "Which film did {name} see {when}?", "What did {name} watch {when}?",
            "What was the film that {name} saw {when}?", "Which film was {name} at {when}?",
            "What was on when {name} went to the cinema {when}?", "Through which film did {name} sit {when}?",
            "What film did {name} watch {when}?", "What picture did {name} go to see {when}?",
        ),
        "when": (
            'When did {name} see "{value}"?', 'On what day did {name} watch "{value}"?',
            'When did {name} go to see "{value}"?', 'What was the date on which {name} saw "{value}"?',
            'When was {name} at the cinema for "{value}"?', 'What day did {name} sit through "{value}"?',
            'When was it that {name} watched the film "{value}"?', 'On which date did {name} see "{value}"?',
        ),
        "order": (
            'Which film did {name} see first, "{value}" or "{other}"?',
            'Did {name} watch "{value}" or "{other}" first?',
            'Which came first for {name}: "{value}" or "{other}"?',
            'What did {name} see earlier, "{value}" or "{other}"?',
            'Of "{value}" and "{other}", which did {name} watch first?',
            'Was it "{value}" or "{other}" that {name} saw first?',
            'Between the films "{value}" and "{other}", which did {name} see earlier?',
            'For which did {name} go to the cinema first, "{value}" or "{other}"?',
        ),
        "with": (
            'With whom did {name} see "{value}"?', 'Who came along when {name} watched "{value}"?',
            'Who did {name} watch "{value}" with?', 'In whose company did {name} see "{value}"?',
            'Who sat next to {name} at "{value}"?', 'Who went with {name} to see "{value}"?',
            'Who was there with {name} for the film "{value}"?', 'Together with whom did {name} watch "{value}"?',
        ),
    },
)
_CONCERT: Final = Relation(
    name="concert", kind="event", values="bands", place="cities",
    first=(
        "I saw {value} live {when}.", "{when} I was at a {value} concert in {place}.",
        "My ears are still ringing, {value} played in {place} {when} and I was there.",
        "I went all the way to {place} {when} to hear {value}.",
        "I got a ticket for {value} and went {when}.", "{when} it was me, a muddy field and {value}.",
        "{value} on stage {when}, me in the second row. Bliss.",
        "I sang along to every song when {value} played {place} {when}.",
    ),
    third=(
        "{name} saw {value} live {when}.", "{when} {name} was at a {value} concert in {place}.",
        "{name} went all the way to {place} {when} to hear {value}.",
        "{name}'s ears are still ringing, {he} heard {value} live {when}.",
        "{name} got a ticket for {value} and went {when}.", "{value} played in {place} {when} and {name} was there.",
        "{when} {name} stood in the second row for {value}.",
        "{name} sang along to every song when {value} played {place} {when}.",
    ),
    hearsay=(
        "I heard {name} saw {value} live {when}.", "Someone saw {name} at the {value} concert {when}, or a double.",
        "Apparently {name} was in the crowd for {value} {when}.", "Didn't {name} have a ticket for {value} {when}?",
        "They say {name} went to hear {value} {when}.", "If I'm right, {when} {name} was at a {value} concert.",
        "Supposedly {name} lost {his} voice {when} singing along to {value}.",
        "I believe it was {value} that {name} saw on stage {when}.",
    ),
    correct=(
        "I said I saw {old}, it was {value} on stage.", "Not {old}, {value}. That's who I heard live.",
        "I mix up band names, I was at the {value} concert and not at the one by {old}.",
        "Sorry, I've never seen {old} live, it was {value}.",
        "It was {value} that I heard, {old} cancelled years ago.",
        "Please read {value} where I wrote {old}, that was the concert.",
        "The band was {value}, {old} was only on the T-shirt next to me.", "I meant {value}! What made me write {old}?",
    ),
    prompts=(
        "Been to any concerts?", "Heard any good live music?",
        "Why are your ears ringing?", "How was the gig?",
    ),
    asks={
        "then": (
            "Which band did {name} see live {when}?", "Who was on stage when {name} went to a concert {when}?",
            "Whose concert was {name} at {when}?", "What band did {name} hear {when}?",
            "Which act did {name} go to hear {when}?", "For which band did {name} have a ticket {when}?",
            "Who played when {name} was in the crowd {when}?", "Which group did {name} see in concert {when}?",
        ),
        "when": (
            "When did {name} see {value} live?", "On what day was {name} at the {value} concert?",
            "When did {name} hear {value}?", "What was the date on which {name} saw {value} on stage?",
            "When did {name} go to hear {value}?", "What day was the {value} concert that {name} went to?",
            "When was it that {name} saw {value}?", "When did {name} stand in the crowd for {value}?",
        ),
        "order": (
            "Which band did {name} see first, {value} or {other}?", "Did {name} hear {value} or {other} live first?",
            "Which concert came first for {name}: {value} or {other}?",
            "Who did {name} see on stage earlier, {value} or {other}?",
            "Of {value} and {other}, which did {name} hear first?", "Was it {value} or {other} that {name} saw first?",
            "Between the concerts of {value} and {other}, which was {name} at earlier?",
            "Whose concert did {name} go to first, that of {value} or that of {other}?",
        ),
        "where": (
            "In which city did {name} see {value} live?", "Where was the {value} concert that {name} went to?",
            "Where did {name} hear {value}?", "In what town was {name} when {value} played?",
            "What city did {name} go to for {value}?", "Where did {value} play when {name} was in the crowd?",
            "In which place did {name} attend the concert of {value}?",
            "Where was it that {name} saw {value} on stage?",
        ),
    },
)
_GAME_WON: Final = Relation(
    name="game_won", kind="event", values="games", tone="good",
    first=(
        "I won at {value} {when}.", "{when} I beat everybody at {value}.",
        "Victory! I came first at {value} {when}.", "I don't want to brag, but {when} I won the {value} evening.",
        "They're still sulking, I won our game of {value} {when}.",
        "{when} I played {value} and left them all in the dust.",
        "{value} is my game, I crushed it {when}.", "By one single point I won {value} {when}.",
    ),
    third=(
        "{name} won at {value} {when}.", "{when} {name} beat everybody at {value}.",
        "{name} came first at {value} {when}.", "We're still sulking, {name} won our game of {value} {when}.",
        "{when} {name} left us all in the dust at {value}.", "By one single point {name} won {value} {when}.",
        "{name} crushed us at {value} {when}.", "Nobody had a chance, {name} won the {value} evening, that was {when}.",
    ),
    hearsay=(
        "I heard {name} won at {value} {when}.", "Someone complained that {name} beat them all at {value} {when}.",
        "Apparently {when} {name} came first at {value}.", "Didn't {name} win the {value} evening {when}?",
        "I think it was {name} who won {value} {when}.", "They say {name} crushed everybody at {value} {when}.",
        "Supposedly {name} won {value} by a point {when}.",
        "If the sulking is anything to go by, {when} {name} won at {value}.",
    ),
    correct=(
        "I said I won at {old}, it was {value}.", "Not {old}, {value}. That's the game I won.",
        "I lost at {old}! The one I won was {value}.", "Sorry, wrong box, I won at {value} and not at {old}.",
        "It was {value}, {old} stayed on the shelf.",
        "I mixed up the games, my victory was at {value} and never at {old}.",
        "Please note for the records: {value}, not {old}, is what I won.", "Did I write {old}? The game was {value}.",
    ),
    prompts=(
        "Did you play anything lately?", "How was games night?",
        "Why are you looking so smug?", "Who won?",
    ),
    asks={
        "then": (
            "Which game did {name} win {when}?", "At what did {name} beat everybody {when}?",
            "What did {name} come first at {when}?", "What game was {name}'s victory at {when}?",
            "At which board game did {name} win {when}?", "What did {name} win at {when}?",
            "Which game ended well for {name} {when}?", "In what game did {name} leave the others behind {when}?",
        ),
        "when": (
            "When did {name} win at {value}?", "On what day did {name} beat everybody at {value}?",
            "When did {name} come first at {value}?", "What was the date of {name}'s victory at {value}?",
            "What day did {name} win the game of {value}?", "When was it that {name} won {value}?",
            "When did {name} crush the others at {value}?", "On which date did {name} win at {value}?",
        ),
        "order": (
            "Which game did {name} win first, {value} or {other}?", "Did {name} win at {value} or at {other} first?",
            "Which victory came first for {name}: {value} or {other}?",
            "What did {name} win earlier, {value} or {other}?",
            "Of {value} and {other}, at which did {name} come first earlier?",
            "Was it {value} or {other} that {name} won first?",
            "Between {value} and {other}, which game did {name} win before the other?",
            "Which of {name}'s victories is older, the one at {value} or the one at {other}?",
        ),
    },
)
_INSTRUMENT: Final = Relation(
    name="instrument", kind="state", values="instruments",
    first=(
        "I'm learning the {value}.", "I play the {value}, badly but with feeling.",
        "My instrument is the {value}.", "I've got lessons on the {value} every week.",
        "My neighbours know it already: I play the {value}.", "It's the {value} that I'm practising.",
        "I do scales on the {value} until somebody knocks on the wall.",
        "I've fallen for the {value} and I'm taking lessons.",
    ),
    third=(
        "{name} is learning the {value}.", "{name} plays the {value}, with feeling.",
        "{name}'s instrument is the {value}.", "{name} has lessons on the {value} every week.",
        "It's the {value} that {name} practises.", "If you hear a {value} through the wall, that's {name}.",
        "{name} takes lessons on the {value}.",
        "Have you heard {name} play the {value}? That's the instrument {he} is learning.",
    ),
    hearsay=(
        "I heard {name} plays the {value}.", "Isn't {name} learning the {value}?",
        "Someone said {name} takes lessons on the {value}.", "Apparently {name}'s instrument is the {value}.",
        "I believe it's the {value} that {name} practises.", "If it isn't somebody else, {name} plays the {value}.",
        "Supposedly {name} spends hours on the {value}.", "They say {name} has fallen for the {value}.",
    ),
    change=(
        "I've given up the {old}, I'm learning the {value} now.", "{when} I switched to the {value}.",
        "I play the {value} now, it suits me better.", "The {old} is sold. I'm taking lessons on the {value}.",
        "I got tired of the {old} and started on the {value} {when}.", "New instrument: the {value}!",
        "My instrument is the {value} these days.",
        "{when} I began with the {value} and left the {old} in its case for good.",
    ),
    change_third=(
        "{name} has given up the {old} and is learning the {value} now.", "{when} {name} switched to the {value}.",
        "{name} plays the {value} now.", "{name} sold the {old}, {he} takes lessons on the {value}.",
        "After all that trouble with the {old}, {name} started on the {value} {when}.",
        "{name}'s new instrument is the {value}.",
        "It's the {value} that {name} practises these days.",
        "{name} got tired of the {old} and plays the {value} now.",
    ),
    correct=(
        "I said I play the {old}, I meant the {value}.", "Not the {old}, the {value}. That's my instrument.",
        "It's the {value} I'm learning, I've never touched a {old}.",
        "Sorry, I keep mixing up the words, I play the {value} and not the {old}.",
        "Please forget the {old}, it's the {value}.", "My instrument is the {value}, the {old} is what I can't stand.",
        "I wrote {old}, but my lessons are on the {value}.", "The {old} belongs to someone else, I play the {value}.",
    ),
    prompts=(
        "Do you play an instrument?", "How are the music lessons?",
        "What are you practising?", "What's that sound?",
    ),
    jokes=(
        "The world isn't ready for my solo on the {value}. There isn't one, don't worry.",
        "I play the {value} only in front of mirrors and only in dreams. Joke.",
        "Twelve orchestras want me on the {value}. Twelve imaginary ones.",
        "One more wrong note and I'll switch to the {value}. Never in my life!",
    ),
    asks={
        "now": (
            "Which instrument does {name} play now?", "What instrument is {name} learning these days?",
            "On what does {name} take lessons at present?", "What is {name}'s current instrument?",
            "What does {name} practise now?", "Which instrument would you hear through {name}'s wall today?",
            "What instrument does {name} have lessons on at the moment?",
            "What does {name} play in {his} music lessons now?",
        ),
        "then": (
            "Which instrument did {name} play {when}?", "What instrument was {name} learning {when}?",
            "On what did {name} take lessons {when}?", "What was {name}'s instrument {when}?",
            "What did {name} practise {when}?", "Which instrument did {name} have lessons on {when}?",
            "Which instrument would one have heard from {name} {when}?",
            "What did {name} play in {his} music lessons {when}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _BOOK,
    _FILM,
    _CONCERT,
    _GAME_WON,
    _INSTRUMENT,
)
"""Books, films, music and games."""
