"""Jobs, prizes and the office."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_JOB: Final = Relation(
    name="job", kind="state", values="jobs",
    first=(
        "I work as {a_value}.", "I'm {a_value} by trade.",
        "For a living I'm {a_value}, and most days I like it.", "My job? I'm {a_value}.",
        "I earn my keep as {a_value}.", "You know me, I'm {a_value} and that's all I talk about at parties.",
        "When people ask what I do, I say I'm {a_value}.",
        "Nine to five I'm {a_value}, the rest of the time I'm tired.",
    ),
    third=(
        "{name} works as {a_value}.", "{name} is {a_value} by trade.",
        "Do you know what {name} does for a living? {he} is {a_value}.", "{name} makes {his} money as {a_value}.",
        "If you ever need {a_value}, ask {name}, that's {his} job.", "By profession {name} is {a_value}.",
        "{name} is {a_value}, and a good one too.", "All week long {name} is busy being {a_value}.",
    ),
    hearsay=(
        "I heard {name} works as {a_value}.", "Isn't {name} {a_value} or something like that?",
        "Somebody said {name} is {a_value} for a living.", "As far as I can tell, {name} works as {a_value}.",
        "I think {name} is {a_value}, unless I'm confusing people.", "They say {name} makes a living as {a_value}.",
        "Supposedly {name}'s job is being {a_value}.", "I have it from a friend that {name} is {a_value}, so maybe.",
    ),
    change=(
        "I've changed careers, I'm {a_value} now.", "I stopped being {a_old} and became {a_value} {when}.",
        "No more work as {a_old} for me. I'm {a_value} now.", "{when} I started a new job as {a_value}.",
        "So I finally did it and I work as {a_value} now.",
        "I was tired of being {a_old}, so I retrained. I'm {a_value} these days.",
        "New badge, new me: I've been {a_value} since I started {when}.",
        "From {a_old} to {a_value}, that's my career in a nutshell. I changed over.",
    ),
    change_third=(
        "{name} changed careers and is {a_value} now.", "{name} became {a_value} {when}.",
        "{name} isn't {a_old} any longer, {he} works as {a_value} now.", "{when} {name} started as {a_value}.",
        "Have you heard what {name} does now? {he} is {a_value}.", "{name} went from being {a_old} to being {a_value}.",
        "After all those years as {a_old}, {name} became {a_value} {when}.",
        "There's a new job for {name}, {he} works as {a_value} now.",
    ),
    correct=(
        "I said I'm {a_old}, that was a slip, I'm {a_value}.", "Not {a_old}, I work as {a_value}.",
        "I'm {a_value}, why did I write {a_old}? I need coffee.",
        "Forget that I said {a_old}. My job is being {a_value}.",
        "Sorry, wrong word, I'm no {a_old} at all... I work as {a_value}.",
        "When I wrote {old} I meant {value}, that's my job.",
        "To be clear, I earn my living as {a_value} and have never been {a_old}.",
        "Did I say {a_old}? I'm {a_value}, that's a different thing entirely.",
    ),
    prompts=(
        "What do you do for work at the moment?", "How's the job?",
        "Remind me what you do for a living?", "What's your line of work these days?",
    ),
    jokes=(
        "I could be {a_value} too, if it weren't for talent, training and effort. Ha.",
        "Sure, by night I'm secretly {a_value}. The cape is in the wash.",
        "Fixing that shelf made me {a_value} for about four seconds. Not really.",
        "My horoscope says I'm {a_value}. My horoscope is an idiot.",
        "With all these leaks I might as well call myself {a_value}. As if!",
        "One more favour and I'll charge you like {a_value}. I'm joking, obviously.",
        "In my next life I'll be {a_value}, in this one I'm just loud.",
        "Trust me, I'm {a_value}. I'm not, but trust me anyway.",
    ),
    asks={
        "now": (
            "What does {name} do for a living now?", "What is {name}'s job at present?",
            "What does {name} work as these days?", "What is {name}'s current occupation?",
            "Which profession does {name} have now?", "How does {name} earn {his} living at the moment?",
            'What would {name} write under "occupation" on a form today?', "In what job is {name} working currently?",
        ),
        "then": (
            "What did {name} do for a living {when}?", "What was {name}'s job {when}?",
            "What did {name} work as {when}?", "Which profession did {name} have {when}?",
            "How did {name} earn {his} living {when}?", "In what job was {name} working {when}?",
            "What was {name}'s occupation {when}?", "What would {name} have called {his} job {when}?",
        ),
        "when": (
            "When did {name} become {a_value}?", "On what day did {name} start to work as {a_value}?",
            "When did {name} begin {his} job as {a_value}?", "What was the date on which {name} became {a_value}?",
            "Since when has {name} worked as {a_value}?", "When did {name} take up work as {a_value}?",
            "What day did {name} start out as {a_value}?", "When was it that {name} changed jobs to become {a_value}?",
        ),
    },
)
_EMPLOYER: Final = Relation(
    name="employer", kind="state", values="employers",
    first=(
        "I work for {value}.", "I'm on the payroll at {value}.",
        "{value} pays my bills, so no complaints from me.", "My employer is {value}, did I ever mention it?",
        "You'd find me at {value} during office hours.", "I'm with {value}, have been for a bit.",
        "My pass says {value}, that's the company I work for.", "It's {value} that I work for.",
    ),
    third=(
        "{name} works for {value}.", "{name} is with {value}.",
        "{value} is where {name} works.", "{name}'s employer is {value}.",
        "If you ring {value}, you may get {name} on the line, {he} works there.",
        "{name} is on the payroll of {value}.",
        "It's {value} that pays {name}'s wages.", "I passed {value} today, that's where {name} has {his} job.",
    ),
    hearsay=(
        "I think {name} works for {value}.", "Somebody said {name} is at {value}.",
        "Doesn't {name} work for {value}?", "Apparently {name}'s employer is {value}.",
        "I heard {name} has a contract with {value}, not sure.", "It might be {value} that {name} works for.",
        "The way I heard it, {name} is on the staff at {value}.", "Supposedly {value} pays {name}'s wages.",
    ),
    change=(
        "I left {old} and work for {value} now.", "{when} I signed with {value}.",
        "First proper week at {value}, my new employer!", "I've handed in my notice at {old}, I'm with {value} now.",
        "I started at {value} {when}.", "You won't see me at {old} any more. I work for {value} these days.",
        "New lanyard: I work at {value} now.", "{when} I went over from {old} to {value}.",
    ),
    change_third=(
        "{name} left {old} and works for {value} now.", "{when} {name} started at {value}.",
        "{name} has a new employer, {value}.", "{name} isn't at {old} any longer, {he} went to {value}.",
        "{value} hired {name} {when}.", "{name} changed companies, {he} is with {value} now.",
        "It's goodbye {old} for {name}. {he} signed with {value} {when}.",
        "Have you seen {name}'s new badge? {he} works at {value}.",
    ),
    correct=(
        "I said {old} is my employer, I meant {value}.", "Not {old}! I work for {value}.",
        "Sorry, I mixed up the names, I'm with {value} and not with {old}.",
        "It's {value} that I work for, forget about {old}.",
        "I never worked for {old}, no idea why I typed it. It's {value}.",
        "Let me fix that: {value} is my employer, {old} isn't.",
        "Wrong company! I work at {value}, where did {old} come from?", "Did I write {old}? My pay comes from {value}.",
    ),
    prompts=(
        "Which company are you with?", "Who do you work for these days?",
        "Who pays your wages at the moment?", "Where are you employed now?",
    ),
    jokes=(
        "At this point I deserve a salary from {value} for my patience. Joke.",
        "I own {value}, by the way. In a board game.",
        "If anyone asks, I'm the ghost that haunts {value}. Boo, kidding.",
        "Yes, and tomorrow I take over {value} with two pigeons and a plan. As if.",
    ),
    asks={
        "now": (
            "Who does {name} work for now?", "Which company employs {name} at present?",
            "Who is {name}'s current employer?", "Where does {name} have a job these days?",
            "Which company pays {name}'s wages now?", "For what company is {name} working at the moment?",
            "Which firm is {name} with currently?", "What is the name of {name}'s present employer?",
        ),
        "then": (
            "Who did {name} work for {when}?", "Which company employed {name} {when}?",
            "Who was {name}'s employer {when}?", "Which firm was {name} with {when}?",
            "For what company was {name} working {when}?", "Which company paid {name}'s wages {when}?",
            "What was the name of {name}'s employer {when}?", "Where did {name} have a job {when}?",
        ),
        "when": (
            "When did {name} start at {value}?", "On what day did {name} join {value}?",
            "When did {name} begin to work for {value}?", "What was the date of {name}'s start at {value}?",
            "When did {value} take {name} on?", "When did {name} change over to {value}?",
            "Since when has {name} been with {value}?", "What day did {name} join the staff of {value}?",
        ),
        "who": (
            "Who works for {value}?", "Who is employed by {value}?",
            "Which of them works at {value}?", "Who has {value} as an employer?",
            "Whose wages are paid by {value}?", "Who is on the staff of {value}?",
            "Which person has a job at {value}?", "Who among them is with {value}?",
        ),
    },
)
_AWARD: Final = Relation(
    name="award", kind="event", values="awards", tone="good",
    first=(
        "I won the {value} {when}.", "{when} they gave me the {value}, I'm still blushing.",
        "You're talking to the winner of the {value}. It was announced {when}.",
        "I can't stop staring at it, I was handed the {value} {when}.",
        "Guess who went on stage {when} to collect the {value}? Me.", "The {value} is on my shelf, I won it {when}.",
        "They read out my name {when} and I'd won the {value}.", "{when} I got the {value} and forgot my whole speech.",
    ),
    third=(
        "{name} won the {value} {when}.", "{when} {name} was given the {value}.",
        "The {value} went to {name} {when}.", "{name} got the {value} {when} and cried a bit.",
        "I clapped till my hands hurt, {name} received the {value} {when}.",
        "Did {name} show you? {he} won the {value} {when}.",
        "{when} they called {name} up and gave {him} the {value}.",
        "There's a trophy on {name}'s shelf, the {value}, {he} won it {when}.",
    ),
    hearsay=(
        "I heard {name} won the {value} {when}.", "Someone said the {value} went to {name} {when}.",
        "Apparently {when} {name} got the {value}.", "Didn't {name} win the {value} {when}?",
        "If the newsletter is right, {name} received the {value} {when}.",
        "I believe it was {name} who got the {value} {when}.",
        "Supposedly {name} was handed the {value} {when}.", "They say that {when} the {value} was given to {name}.",
    ),
    correct=(
        "I said I'd won the {old}, it was the {value}.", "Not the {old}, the {value}. That's what I won.",
        "Silly me, it's called the {value} and not the {old}, the prize I got.",
        "The {old} went to somebody else, I won the {value}.",
        "What I won was the {value}. I mixed it up with the {old}.",
        "Did I write {old}? It says {value} on the plaque.",
        "I was too excited to type, the prize was the {value}, never the {old}.",
        "Let me correct that before anyone asks: I won the {value} and not the {old}.",
    ),
    prompts=(
        "Any good news from your side?", "Has anything nice happened lately?",
        "Have you got something to celebrate?", "What are you so cheerful about?",
    ),
    asks={
        "then": (
            "What did {name} win {when}?", "Which award did {name} get {when}?",
            "Which prize went to {name} {when}?", "What was {name} given on stage {when}?",
            "What award was {name} handed {when}?", "Which honour did {name} receive {when}?",
            "What prize did {name} collect {when}?", "With what was {name} honoured {when}?",
        ),
        "when": (
            "When did {name} win the {value}?", "On what day was {name} given the {value}?",
            "When did the {value} go to {name}?", "What was the date on which {name} got the {value}?",
            "When was {name} handed the {value}?", "On which date did {name} receive the {value}?",
            "What day did {name} collect the {value}?", "When was it that {name} won the {value}?",
        ),
        "order": (
            "Which did {name} win first, the {value} or the {other}?",
            "Did {name} get the {value} or the {other} first?",
            "Which award came first for {name}: the {value} or the {other}?",
            "Which prize did {name} receive earlier, the {value} or the {other}?",
            "Of the {value} and the {other}, which did {name} win first?",
            "Was it the {value} or the {other} that {name} got first?",
            "What was {name} given first, the {value} or the {other}?",
            "Between the {value} and the {other}, which was {name}'s earlier award?",
        ),
    },
)
_INTERVIEW: Final = Relation(
    name="interview", kind="plan", values="employers",
    first=(
        "I've got a job interview at {value} {when}.", "{when} I'm going for an interview at {value}.",
        "Wish me luck, {value} is interviewing me {when}.", "I'm meeting the people at {value} {when}, for a job.",
        "They invited me! My interview with {value} is {when}.",
        "I'm nervous already: {when} is my interview at {value}.",
        "{value} wants to see me {when} about a post.",
        "I ironed a shirt, because {when} I have an interview at {value}.",
    ),
    third=(
        "{name} has a job interview at {value} {when}.", "{when} {name} is going for an interview at {value}.",
        "{value} is interviewing {name} {when}.", "{name} will be meeting the people at {value} {when}, for a job.",
        "Keep your fingers crossed for {name}, {he} has {his} interview at {value} {when}.",
        "{value} invited {name} to an interview, it's {when}.",
        "{name} is nervous about {his} interview with {value}, which is {when}.",
        "There's a job going at {value} and {name} is being interviewed {when}.",
    ),
    done=(
        "I had my interview at {value}.", "The interview with {value} happened and I survived it.",
        "I've been to {value} for the interview, they were friendly.",
        "It's done, I sat in front of three people from {value}.",
        "I went to the interview at {value} as planned.",
        "So, the interview at {value}: I talked far too much, but I did it.",
        "I've now had the talk with {value} about the job.",
        "My interview at {value} is behind me, and I only spilt a little water.",
    ),
    cancelled=(
        "{value} called off my interview.", "The interview at {value} isn't happening, they filled the post.",
        "I cancelled my interview with {value}, I didn't want it enough.", "No interview at {value} after all.",
        "I never went to {value}, the interview was dropped.",
        "They withdrew the post, so there was no interview at {value}.",
        "Forget about my interview at {value}, it's off.",
        "I got cold feet and told {value} I wouldn't come to the interview.",
    ),
    moved=(
        "{value} moved my interview, it's {when} now.", "My interview at {value} has been put back, new date: {when}.",
        "The interview with {value} will be {when} instead.",
        "They rang from {value}, I'm to come for the interview {when} now.",
        "New day for my interview at {value}: {when}.", "I had to shift the interview with {value}, it's now {when}.",
        "Change of plan, {value} is interviewing me {when} instead.",
        "It's {when} now, the interview at {value}. They double-booked.",
    ),
    prompts=(
        "How's the job hunt?", "Anything going on with job applications?",
        "Any news on the work front?", "Have you heard back from anybody about a job?",
    ),
    asks={
        "when": (
            "When is {name}'s interview at {value} meant to be?",
            "On what day does {name} have {his} interview with {value}?",
            "For which date is {name}'s interview at {value} set?", "When is {value} to interview {name}?",
            "What is the date of {name}'s interview with {value}?",
            "What day is planned for {name}'s interview at {value}?",
            "When is {name} supposed to see {value} about a job?",
            "On which day is the interview of {name} at {value}?",
        ),
        "outcome": (
            "Did {name} have {his} interview at {value}?", "Did {name}'s interview with {value} take place?",
            "Has {name} been to the interview at {value}?", "Did {name} go to {value} for the interview?",
            "Was {name} interviewed by {value}?", "Did the interview at {value} go ahead for {name}?",
            "Did anything come of {name}'s plan to interview at {value}?", "Has {value} interviewed {name}?",
        ),
    },
)
_WORK_DRAMA: Final = Relation(
    name="work_drama", kind="cause", values="",
    pairs=(
        ("handed in {his} notice", "{he} was passed over for promotion twice"),
        ("missed the morning meeting", "the alarm on {his} phone was set to the wrong day"),
        ("worked all weekend", "the server lost a month of invoices"),
        ("asked for a transfer", "the new manager shouted at everybody"),
        ("turned down a pay rise", "it came with a night shift"),
        ("got a standing ovation at the conference", "{his} slides failed and {he} sang the summary"),
        ("was sent home early", "the office ceiling had started to leak"),
        ("apologised to the whole department", "{he} had replied to all by accident"),
        ("went part-time", "{he} wanted more time for {his} parents"),
        ("moved {his} desk into the corridor", "the air conditioning above it rattled"),
        ("lost the biggest client", "the contract went to the wrong address"),
        ("was put in charge of training", "the last trainer eloped"),
        ("got a bonus", "{he} found a mistake in the tax return"),
        ("skipped the staff party", "{he} had quarrelled with the organiser"),
    ),
    first=(
        "So, confession: I {value}.", "I {value} {when}.",
        "You'll laugh. {when} I {value}.", "I might as well tell you that I {value}.",
        "Well, it happened, I {value} {when}.", "I never thought I'd say it, but I {value}.",
        "{when} was a strange one for me, I {value}.", "I still can't believe I {value}.",
    ),
    third=(
        "Did you hear that {name} {value}?", "{name} {value} {when}.",
        "{when} {name} {value}, of all people.", "It's true, {name} {value}.",
        "You won't believe it, {name} {value} {when}.", "I was surprised too, but {name} {value}.",
        "So {when} it turned out that {name} {value}.", "{name} {value}, it was the talk of the office.",
    ),
    reason=(
        "It was because {cause}.", "The reason is that {cause}.",
        "You asked why. Well, {cause}.", "And all of that because {cause}.",
        "I {value} because {cause}, that's the whole story.", "In case you wondered, it happened because {cause}.",
        "It came down to this: {cause}.", "Why I {value}? Simple, {cause}.",
    ),
    prompts=(
        "How are things at work?", "What's the news from the office?",
        "Did you have a normal week at work?", "Any drama at work?",
    ),
    asks={
        "why": (
            "Why is it that {name} {value}?", "What was the reason that {name} {value}?",
            "How come {name} {value}?", "What was behind it when {name} {value}?",
            "For what reason is it that {name} {value}?", "What explains that {name} {value}?",
            "What led to it that {name} {value}?", "What happened, so that {name} {value}?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _JOB,
    _EMPLOYER,
    _AWARD,
    _INTERVIEW,
    _WORK_DRAMA,
)
"""Jobs, prizes and the office."""
