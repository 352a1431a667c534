"""Studies, courses and languages."""

from __future__ import annotations

from typing import Final

from environments.worlds.spec import Relation

# A line of two forms is a training form and a held-out one.
# fmt: off
_STUDIES: Final = Relation(
    name="studies", kind="state", values="degrees",
    first=(
        "I'm studying {value} in the evenings.", "I'm doing a degree in {value}, bit by bit.",
        "My subject is {value}, part-time.", "I've got an essay on {value} due, such is student life.",
        "I'm enrolled in {value}, did I say?", "On my student card it says {value}.",
        "I spend my evenings on {value}, for the degree.",
        "It's {value} that I'm studying, in case you wondered about the books.",
    ),
    third=(
        "{name} is studying {value}.", "{name} is doing a degree in {value}.",
        "{name}'s subject at university is {value}.", "In the evenings {name} studies {value}.",
        "{name} is enrolled in {value}.", "It's {value} that {name} is studying.",
        "All those books of {name}'s are for {his} degree in {value}.", "{name} has lectures in {value} every week.",
    ),
    hearsay=(
        "I heard {name} is studying {value}.", "Isn't {name} doing a degree in {value}?",
        "Someone mentioned {name} is enrolled in {value}.", "I think {value} is {name}'s subject, or close to it.",
        "Supposedly {name} studies {value}.", "If I remember right, {name} has lectures in {value}.",
        "They tell me {name} is a student of {value}.", "Might it be {value} that {name} is studying?",
    ),
    change=(
        "{when} I changed my subject to {value}.", "I've switched my degree from {old} to {value}.",
        "No more {old} for me, I'm studying {value} now.", "I dropped {old} and enrolled in {value} {when}.",
        "I've changed courses, it's {value} now.", "It turns out {old} wasn't for me. I study {value} now.",
        "New library card, new subject: {value}.", "I study {value} these days, the switch went through {when}.",
    ),
    change_third=(
        "{name} switched from {old} to {value}.", "{when} {name} changed subjects to {value}.",
        "{name} dropped {old} and studies {value} now.", "{name} has a new subject at university, {value}.",
        "{name} enrolled in {value} {when}.", "It's no longer {old} that {name} studies, it's {value}.",
        "{name} is studying {value} these days.", "After a long think {name} gave up {old} for {value} {when}.",
    ),
    correct=(
        "I said I study {old}, I meant {value}.", "Not {old}, {value}. That's my degree.",
        "My subject is {value}. I've no clue why I wrote {old}.",
        "Sorry, {value} is what I'm studying, I've never had a lecture in {old}.",
        "Strike {old}, I'm enrolled in {value}.", "It isn't {old} I'm doing, it's {value}.",
        "Wrong subject, I study {value} and not {old}.", "Where I wrote {old}, read {value}. That's my subject.",
    ),
    prompts=(
        "How are the studies going?", "What is it you're studying?",
        "What's your subject at university?", "How's student life?",
    ),
    asks={
        "now": (
            "What is {name} studying now?", "Which subject does {name} study at present?",
            "In what subject is {name} doing a degree now?", "What is {name}'s current subject at university?",
            "What is {name} enrolled in these days?", "Which field is {name} a student of at the moment?",
            "What are {name}'s lectures about currently?", "What degree is {name} working on now?",
        ),
        "then": (
            "What was {name} studying {when}?", "Which subject did {name} study {when}?",
            "In what subject was {name} doing a degree {when}?", "What was {name}'s subject at university {when}?",
            "What was {name} enrolled in {when}?", "Which field was {name} a student of {when}?",
            "What were {name}'s lectures about {when}?", "What degree was {name} working on {when}?",
        ),
    },
)
_LANGUAGE: Final = Relation(
    name="language", kind="state", values="languages",
    first=(
        "I'm learning {value}.", "I take {value} lessons.",
        "My phone shouts at me daily in {value}, I'm learning it.", "I'm trying to teach myself {value}.",
        "It's {value} that I'm learning, the grammar is a horror.", "I've got flashcards in {value} all over the flat.",
        "I spend my breakfasts on {value} verbs, that's the language I'm on.",
        "You can test me on {value} numbers, I'm taking a class.",
    ),
    third=(
        "{name} is learning {value}.", "{name} takes {value} lessons.",
        "{name} is trying to teach {him}self {value}.", "It's {value} that {name} is learning.",
        "There are {value} flashcards all over {name}'s home, {he} is learning it.", "{name} goes to a {value} class.",
        "Say something in {value} to {name}, that's the language {he} is learning.",
        "The language {name} is working on is {value}.",
    ),
    hearsay=(
        "I heard {name} is learning {value}.", "Isn't {name} taking {value} lessons?",
        "Someone said {name} goes to a {value} class.", "Apparently it's {value} that {name} is learning.",
        "I think {name} is trying to pick up {value}.", "They say {name} mumbles {value} verbs all day.",
        "If I got it right, {name} has started to learn {value}.",
        "Supposedly {name}'s language is {value}, as far as classes go.",
    ),
    change=(
        "I've dropped {old}, I'm learning {value} now.", "{when} I switched to a {value} class.",
        "I'm on to a new language, {value}.", "No more {old} for me, it's {value} now.",
        "I couldn't face the {old} grammar, so I started {value} {when}.", "These days I'm learning {value}.",
        "{when} I put away the {old} books and opened the {value} ones.",
        "My teacher left, so now I'm learning {value} with another.",
    ),
    change_third=(
        "{name} dropped {old} and is learning {value} now.", "{when} {name} switched to a {value} class.",
        "{name} is learning a new language, {value}.",
        "{name} couldn't face the {old} grammar and started {value} {when}.",
        "No more {old} for {name}, it's {value} now.", "These days {name} is learning {value}.",
        "{when} {name} put away {his} {old} books and began with {value}.",
        "Out with the old flashcards, {name} is learning {value} now.",
    ),
    correct=(
        "I said I'm learning {old}, it's {value}.", "Not {old}, {value}. That's the language.",
        "I'm learning {value}, I don't know a word of {old}.",
        "Sorry, wrong flag: it's {value} and not {old} that I'm learning.",
        "Please forget {old}, my class is in {value}.",
        "It's {value}! I wrote {old} because I'd just had a {old} lunch.",
        "My lessons are in {value}, they were never in {old}.",
        "I meant {value} when I said {old}. My head is full of verbs.",
    ),
    prompts=(
        "Are you learning any languages?", "How's the language class?",
        "Which verbs are you mumbling?", "What are those flashcards for?",
    ),
    jokes=(
        "I'm fluent in {value} after two glasses. In my opinion only.",
        "I only swear in {value}. Kidding, I don't know a word.",
        "My plants speak {value} to me. That's a joke, before you ring someone.",
        "By Friday I'll have learnt {value} in my sleep. Sure I will.",
    ),
    asks={
        "now": (
            "Which language is {name} learning now?", "What language does {name} take lessons in these days?",
            "In which language is {name}'s class at present?", "What is {name}'s current language to learn?",
            "Which language is {name} working on now?", "What language is on {name}'s flashcards at the moment?",
            "Which language's grammar is {name} struggling with today?",
            "What tongue is {name} trying to pick up currently?",
        ),
        "then": (
            "Which language was {name} learning {when}?", "What language did {name} take lessons in {when}?",
            "In which language was {name}'s class {when}?", "Which language was {name} working on {when}?",
            "What language was on {name}'s flashcards {when}?",
            "What was the language that {name} was learning {when}?",
            "What tongue was {name} trying to pick up {when}?",
            "The grammar of which language did {name} study {when}?",
        ),
    },
)
_COURSE_PASSED: Final = Relation(
    name="course_passed", kind="event", values="courses", tone="good",
    first=(
        "I passed my course in {value} {when}.", "{when} I got my certificate in {value}.",
        "I did it, I finished the {value} course {when}!", "My certificate for {value} came through {when}.",
        "I'm officially certified in {value}, the exam was {when}.", "{when} I sat the test in {value} and passed.",
        "Frame this: I completed my {value} course {when}.", "The examiner smiled, so I knew. I passed {value} {when}.",
    ),
    third=(
        "{name} passed {his} course in {value} {when}.", "{when} {name} got {his} certificate in {value}.",
        "{name} finished the {value} course {when}.", "{name} is certified in {value}, {he} passed the test {when}.",
        "{when} {name} sat the exam in {value} and came out beaming.",
        "The certificate in {value} came for {name} {when}.",
        "{name} completed a course in {value} {when}.", "Would you believe it, {name} passed {value} {when}.",
    ),
    hearsay=(
        "I heard {name} passed a course in {value} {when}.", "Apparently {name} got a certificate in {value} {when}.",
        "Didn't {name} finish the {value} course {when}?",
        "Someone said that {when} {name} passed the test in {value}.",
        "I think {name} is certified in {value}, the exam was {when}.",
        "If I'm not mixing things up, {name} completed {value} {when}.",
        "Supposedly {when} {name} came home with a certificate in {value}.",
        "They tell me {name} did the exam in {value} {when} and got through.",
    ),
    correct=(
        "I said the course was {old}, it was {value}.", "Not {old}, {value}. That's the certificate I got.",
        "I wrote {old}, but what I passed was {value}.",
        "My certificate is in {value}, I was thinking of something else when I said {old}.",
        "Forget {old}, I took the exam in {value}.", "No no, I've never done {old}. The course I finished was {value}.",
        "Wrong course name, sorry: {value} and not {old}.", "What I passed was {value}. The {old} thing was a slip.",
    ),
    prompts=(
        "Are you learning anything new?", "How are the evening classes?",
        "Have you taken any exams lately?", "Did anything come of that course?",
    ),
    asks={
        "then": (
            "Which course did {name} pass {when}?", "In what did {name} get a certificate {when}?",
            "What course did {name} finish {when}?", "Which exam did {name} pass {when}?",
            "What was the certificate in that {name} got {when}?", "What did {name} become certified in {when}?",
            "Which course did {name} complete {when}?", "What was the subject of the test that {name} passed {when}?",
        ),
        "when": (
            "When did {name} pass {his} course in {value}?", "On what day did {name} get the certificate in {value}?",
            "When did {name} finish the {value} course?", "What was the date of {name}'s exam in {value}?",
            "When was {name} certified in {value}?", "When did {name} complete {his} course in {value}?",
            "What day did {name} pass the test in {value}?", "On which date did {name} get through {value}?",
        ),
        "order": (
            "Which course did {name} pass first, {value} or {other}?",
            "Did {name} get {his} certificate in {value} or in {other} first?",
            "Which came first for {name}, the course in {value} or the one in {other}?",
            "Which exam did {name} pass earlier: {value} or {other}?",
            "Of {value} and {other}, which did {name} complete first?",
            "Was it {value} or {other} that {name} finished first?",
            "In which was {name} certified first, {value} or {other}?",
            "Between {value} and {other}, which course did {name} pass earlier?",
        ),
    },
)
_COURSE_PLAN: Final = Relation(
    name="course_plan", kind="plan", values="courses",
    first=(
        "I'm starting a course in {value} {when}.", "{when} my {value} course begins.",
        "I've signed up for {value}, the first class is {when}.", "I paid the deposit, so {when} I start with {value}.",
        "My evening class in {value} begins {when}.", "Wish me luck with {value}, the course starts {when}.",
        "I'm going back to school for {value}, from {when}.", "{when} I'll be sitting in my first lesson in {value}.",
    ),
    third=(
        "{name} is starting a course in {value} {when}.", "{when} {name}'s {value} course begins.",
        "{name} has signed up for {value}, the first class is {when}.",
        "{name} paid the deposit for {value}, {he} starts {when}.",
        "{name}'s evening class in {value} begins {when}.",
        "{when} {name} will be sitting in {his} first lesson in {value}.",
        "{name} is going back to school for {value}, it begins {when}.",
        "Wish {name} luck with the course in {value}, it starts {when}.",
    ),
    done=(
        "I've started the course in {value}.", "I went to my first class in {value}, as planned.",
        "The course in {value} has begun and I was there.", "So I did begin with {value}, nobody laughed.",
        "My first lesson in {value} is behind me.", "I'm officially a student of {value}, it started.",
        "I sat in the front row for {value}, we've begun.", "The {value} class got going and so did I.",
    ),
    cancelled=(
        "I've dropped the course in {value} before it began.", "The {value} course was cancelled, too few people.",
        "I'm not doing {value} after all.", "I asked for my deposit for {value} back.",
        "There'll be no {value} for me, the teacher quit.", "My class in {value} isn't happening.",
        "I pulled out of {value}.", "The course in {value} was called off.",
    ),
    moved=(
        "My course in {value} starts {when} instead.", "They moved the {value} class, it begins {when} now.",
        "New start for my {value} course: {when}.", "The course in {value} was put off, first lesson {when}.",
        "It's {when} now that I begin with {value}.", "The room was flooded, so {value} starts {when} now.",
        "I changed to another group, my {value} course starts {when}.",
        "{value} has been shifted, I'm beginning {when} instead.",
    ),
    prompts=(
        "Are you signing up for anything?", "What about that evening class?",
        "Any plans to learn something?", "Did your course ever start?",
    ),
    asks={
        "when": (
            "When is {name}'s course in {value} meant to start?", "On what day does {name} plan to begin with {value}?",
            "For which date is the first class of {name} in {value} set?", "When is {name} to start with {value}?",
            "What is the date of {name}'s first lesson in {value}?", "What day should {name}'s {value} course begin?",
            "When is {name} supposed to start the class in {value}?",
            "On which day does {name}'s evening class in {value} begin?",
        ),
        "outcome": (
            "Did {name} start the course in {value} as planned?", "Did {name}'s course in {value} begin?",
            "Has {name} started with {value}?", "Did {name} go to the first class in {value}?",
            "Did {name} begin to learn {value} in that course?",
            "Did {name}'s plan to take a course in {value} work out?",
            "Did the {value} class get going for {name}?", "Did {name} take up the place in the {value} course?",
        ),
    },
)
# fmt: on

RELATIONS: Final[tuple[Relation, ...]] = (
    _STUDIES,
    _LANGUAGE,
    _COURSE_PASSED,
    _COURSE_PLAN,
)
"""Studies, courses and languages."""
