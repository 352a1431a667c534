"""Rules that tell a statement from what is only context: questions, greetings, comments.

Pure, and made to err on the side of keeping. The rules for greetings and comments know
English; a question ends with a question mark in any script, and a sentence in another
language that does not is a statement. The surprise: a question mark alone is not enough
("I moved to Porto, right?" states something).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memagent.designs.parts.rules.keeping import (
    NAME,
    SMALL_TALK,
    content,
    informative,
    stems,
    terms_of,
)
from memagent.language.vocabulary import MONTHS, WEEKDAYS, any_of
from memagent.state.tokens import tokenize

_SENTENCE = re.compile(r"[^.!?\uff1f\u061f\u3002\n]+[.!?\uff1f\u061f\u3002\n]*")
_MAX_SENTENCE = 1_000
"""Rules read so many characters of a sentence."""
_ASKS = re.compile(r"[?\uff1f\u061f\u055e\u2e2e\u037e]")
_OPENING = (
    r"^(?:(?:hey|hi|hello|wow|whoa|woah|oh|ooh|aww?|ah|m+|woohoo|yay|ouch|oof|well|yeah|yes|yep|yup|no|so|and|but|ok|okay"
    r"|haha|lol|cheers|man|dude|buddy|sure|thanks|right|btw|also|anyway|definitely|absolutely|totally|plus)\b[\s,.!\u2013\u2014-]*)*"
)
_DECLARED = re.compile(
    _OPENING
    + r"(?:(?:I|we)(?:['\u2019](?:m|ve|ll|d|re))?\s+(?!(?:was\s+)?wonder)\w+|(?:my|our)\s+\w+)"
    r"|\b(?:did|have|haven['\u2019]t|didn['\u2019]t)\s+I\s+(?:ever\s+|already\s+)?(?:tell|told|mention|mentioned|say|said)\b"
    r"|\bdo\s+you\s+remember\s+(?:that|when|how)\s+(?:I|we|my|our)\b",
    re.I,
)
"""A sentence with a question mark that tells something: "I moved to Porto, right?"."""
_PROPOSED = re.compile(
    r"\b(?:say|how\s+about|what\s+about|shall\s+we|let['\u2019]?s)\b.{0,300}(?:\d|\b(?:"
    rf"{any_of(*WEEKDAYS.values(), *MONTHS.values())}|tomorrow)\b)",
    re.I,
)
"""A question that proposes a date: "Say, the second weekend of October?"."""
_OWN_WORDS = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b", re.I)
_POLITE = re.compile(
    r"\bI(?:['\u2019]m|\s+am|['\u2019]ll\s+be|\s+was)\s+(?:(?:so|really|very|truly|just|super|always|also|too)\s+)*"
    r"(?:glad|happy|proud|sorry|sure|impressed|thrilled\s+(?:for|to\s+hear)|excited\s+(?:for\s+you|to\s+(?:see|hear))"
    r"|here\s+(?:for|to)|rooting|cheering|in\s+your\s+corner|all\s+ears|grateful\s+(?:for\s+(?:you|your)|to\s+have\s+you))\b"
    r"|\bI\s+(?:(?:totally|completely|really|do|truly|also|just|absolutely|definitely|couldn['\u2019]t)\s+)*"
    r"(?:agree|understand|hear\s+you|get\s+it|get\s+that|see|appreciate|hope|bet|wish|admire|believe|guess|know"
    r"|love\s+(?:that|it|how\s+you|your|hearing|seeing)|like\s+(?:that|how\s+you|your)|think\s+(?:you|that['\u2019]?s|it['\u2019]?s)"
    r"|can\s+(?:see|imagine|tell|understand|relate)|can['\u2019]t\s+(?:wait|imagine|believe)|have\s+no\s+doubt|feel\s+you"
    r"|look\s+forward|can\s+picture|won['\u2019]t\s+give\s+up)\b"
    r"|\bI(?:['\u2019]m|\s+am)\s+(?:\w+\s+)?(?:around\s+for\s+you|(?:pumped|stoked|excited|thrilled)\s+(?:for\s+you|to\s+(?:hear|see|learn)))\b"
    r"|\bI(?:['\u2019]d|\s+would)\s+(?:\w+\s+)?love\s+to\s+(?:check|hear|see|know|learn\s+more)\b|\bI['\u2019]m\s+(?:curious|up\s+for|gonna\s+(?:make\s+it|keep))\b"
    r"|\bI\s+(?:won['\u2019]t|will\s+not)\s+(?:quit|stop)\b|\bI(?:['\u2019]ll|\s+will)\s+(?:reach\s+out|watch|be\s+there|keep)\b"
    r"|\bI(?:['\u2019]ll|\s+will)\s+(?:\w+\s+)?(?:let\s+you\s+know|keep\s+you|check\s+(?:it|them|that)|have\s+(?:a\s+blast|fun)|do\s+my\s+best|try\s+my\s+best)\b"
    r"|\b(?:keep|tell|show|let|give|join|inspire|reminds|inspires|motivates)\s+(?:me|us)\b"
    r"|\b(?:makes?|shows?|helps?|helping|reminds?|connects?|lets?|brings?|gives?|to)\s+us\b.*"
    r"|\bwe(?:['\u2019]re|['\u2019]ve)?\s+(?:all|should|can|could|must|need\s+to|got\s+this|in\s+this)\b.*|\bours(?:elf|elves)\b|\bour\s+(?:passions?|dreams?|goals?|lives|true|own)\b"
    r"|\b(?:mean|means|meant)\s+(?:\w+\s+){1,3}to\s+(?:me|us)\b|\b(?:having|have|got)\s+my\s+back\b"
    r"|\b(?:we|I)(?:['\u2019]ll)?\s+(?:can\s+|will\s+|should\s+|have\s+to\s+)?(?:catch\s+up|talk|chat|got\s+this|do\s+(?:this|it))\b",
    re.I,
)
_GOOD = (
    r"(?:great|good|nice|cool|awesome|amazing|wonderful|fantastic|lovely|sweet|super|incredible|beautiful"
    r"|gorgeous|stunning|adorable|cute|fun|interesting|exciting|inspiring|impressive|perfect|excellent|brilliant"
    r"|terrible|awful|sad|tough|hard|rough|scary|sick|neat|fab|fabulous|delicious|yummy|true|right|okay|ok|fine"
    r"|important|essential|so|really|pretty|such|always|quite|very|totally|absolutely|always|like|a\s+(?:great|good|nice|lovely|cool|real|tough|perfect|wonderful))"
)
_STRONG = (
    r"(?:a\s+(?:great|cool|good|nice|smart|real|wonderful|big)|great|awesome|amazing|always\\s+cool|wonderful|cool|fantastic|incredible"
    r"|beautiful|inspiring|impressive|perfect|important|so\s+important|worth|super|so\s+(?:cool|special|fun|good|great|rewarding)|(?:really\s+)?(?:special|cool|rewarding|inspiring)"
    r"|(?:always\s+|so\s+|really\s+)*(?:much\s+)?fun|the\s+best|a\s+(?:huge|special|must))"
)
_COMMENT = re.compile(
    _OPENING + r"(?:\w+[,!]\s+)?(?:"
    rf"(?:that|this|it|these|those|they)(?:['\u2019]?s|['\u2019]?re|\s+is|\s+are|\s+was|\s+were|\s+must|\s+can|\s+will|['\u2019]ll|\s+has|\s+have|\s+really)?\s+(?:be\s+|been\s+|have\s+been\s+)?{_GOOD}\b"
    r"|(?:that|this|it|these|they|which)\s+(?:all\s+)?(?:sounds?|looks?|seems?|feels?|must)\b|(?:sounds?|looks?|seems?|must(?:['\u2019]ve)?)\b"
    r"|that['\u2019]?s\s+(?:\w+\W*){1,3}$|that\s+(?:rocks|rules|helps|works|counts|makes\s+sense)|recommend\b|add\s+it\b|check\s+(?:it|them|that)\b"
    rf"|\w+ing\s.*\b(?:is|are|can\s+be|must\s+be)\s+(?:\w+\s+)?(?:{_STRONG})\b|that['\u2019]s\s+an?\s+(?:gorgeous|beautiful|huge)\b"
    r"|(?:\w+\s+){1,3}(?:really|sure|definitely)\s+(?:do|does|has|have|is|are|can|makes?|helps?|shows?|brings?)\b|life['\u2019]?s\b|nothing\b|(?:seeing|hearing|exploring|having)\b.*\b(?:is|are|must)\b"
    rf"|(?:that|this|those|these)\s+(?:\w+\s+){{1,6}}(?:is|are|looks?|sounds?)\s+(?:\w+\s+)?(?:gorgeous|{_STRONG})\b"
    r"|(?:go\s+for|give\s+it)\b|what\s+an?\b|how\s+(?:\w+)\b|you\b|you['\u2019]\w+|your\b|yours\b|congrat\w*|way\s+to\s+go|good\s+(?:for|luck|job|on|to)"
    r"|best\s+of|keep\s+(?:it\s+up|going|up|push\w*|at\s+it|on|in|shining|believing|rock\w*|chasing|me|us|working|moving|striving|doing|up)\b|hang\s+in|don['\u2019]?t\s+(?:give|worry|forget|let|be|stop|sweat|hesitate|mention|ever)\b|never\s+(?:give|stop|forget|mind|say)\b|(?:just\s+)?(?:remember|believe|imagine)\b|can['\u2019]?t\s+wait|enjoy\b|take\s+(?:care|it|your|a\s+break|breaks|that|this)\b"
    r"|have\s+(?:fun|a\b)|stay\b|glad|happy|sorry|nice|cool|great|awesome|amazing|wonderful|fantastic|lovely|excited|proud"
    r"|love\s+(?:that|it|the|your|how|this)|wishing|best|hope|hopefully|let['\u2019]?s|thanks|thank|appreciate|no\s+(?:doubt|problem|worries)"
    r"|(?:see|talk|speak)\s+(?:you|to|soon|later)|feel\s+free|welcome|(?:that|this)\b(?=\W*$)|believe\s+in|go\s+for|can\s+you"
    rf"|(?:\w+(?:s|ing)\s+|(?:\w+[-\s]+){{2,8}})(?:is|are)\s+(?:\w+\s+)?(?:key|{_STRONG})\b"
    r"|(?!please\b|always\b|never\b|don['\u2019]?t\b|use\b|call\b|answer\b|reply\b|write\b|been\b|got\b|went\b|had\b|just\b|still\b|saw\b|took\b|bought\b|found\b|met\b|made\b|\w+ed\b|\w+ing\b).*\b(?:you|your|yours|you['\u2019]\w+)\b|(?:lucky|kudos|props|woohoo|yum|yikes|cheers|chase|push|trust|just\s+keep)\b"
    r"|it['\u2019]?s\s+(?:worth|all\s+about|the\s+(?:little|best|least))|agreed|exactly|same\s+here|of\s+course|make\s+sure|reach\s+out|there['\u2019]?s\s+(?:nothing|always))",
    re.I,
)
_PEP_TALK = stems(
    """
    support encouragement encourage mean dream goal push forward hard work pay passion inspire
    inspiring inspiration motivate motivated motivation determine determined positive proud
    rewarding tough rough effort believe success special important excited excite heart life
    grateful thankful blessed huge pumped stoked thrilled ready moment memories memory
    strong strength courage brave step challenge advice help helpful helped friend buddy pal
    rock awesomeness lucky worth matter best better stay hang kind kindness care caring share
    stuff bit lately feel feeling felt place people way forever never totally super cheer
    """
)
_DIGIT = re.compile(r"\d")
_DAY = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|yesterday|tomorrow|(?:last|next)\s+\w+)\b",
    re.I,
)
_WISH = re.compile(_OPENING + r"(?:see|talk|catch|have|enjoy|good\s+luck|best)\b", re.I)
_ENGLISH = stems(
    "a an the and or but if in on at to of for from with by about is are was were be been am do "
    "does did have has had i you he she it we they me my your his her our their this that these "
    "those not no so as up out all can could will would should just there here what how"
)


def context_reason(text: str, *, names: Iterable[str] = (), comments: bool = True) -> str:
    """Say why a turn is kept as context of its session only; "" for a turn that states something.

    A turn states something unless each of its sentences asks, greets, thanks, agrees, or
    comments on what the other said without a word about the speaker, a number, a day or
    a name. Sentences that are not English state something unless they end with a
    question mark. Without `comments` a comment counts as a statement too: what an
    assistant advises has no word about itself.
    """
    own = terms_of(names)
    if not informative(text, names=names):
        return "small talk: says nothing to remember"
    asks = False
    for match in _SENTENCE.finditer(text):
        sentence = match.group().strip()[:_MAX_SENTENCE]
        terms = tokenize(sentence, keep_stop_words=True)
        if not terms:
            continue
        if _ASKS.search(sentence) and not (
            _DECLARED.search(sentence) or _PROPOSED.search(sentence)
        ):
            asks = True
        elif not _greets(sentence, own) and not (comments and _comments(sentence, terms, own)):
            return ""
    return "a question: asks and states nothing" if asks else "a comment: states nothing of its own"


def _greets(sentence: str, own: frozenset[str]) -> bool:
    """Say whether nothing is left of a sentence besides small talk and those present."""
    return all(_known(term, own) for term in content(sentence, but=_PEP_TALK))


def _comments(sentence: str, terms: Sequence[str], own: frozenset[str]) -> bool:
    """Say whether an English sentence only comments, greets, thanks or wishes."""
    if 3 * sum(term in _ENGLISH or term in SMALL_TALK for term in terms) < len(terms):
        return False
    if _DIGIT.search(sentence) or (_DAY.search(sentence) and not _WISH.search(sentence)):
        return False
    if any(not _known(match[1], own) for match in NAME.finditer(sentence)):
        return False
    bare = _POLITE.sub(" ", sentence)
    if _OWN_WORDS.search(bare):
        return False
    return bare != sentence or _COMMENT.search(sentence) is not None


def _known(name: str, own: frozenset[str]) -> bool:
    """Say whether a capitalised word names somebody present, maybe in short, or is small talk."""
    return all(
        term in own or term in SMALL_TALK or any(full.startswith(term[:3]) for full in own)
        for term in stems(name)
    )
