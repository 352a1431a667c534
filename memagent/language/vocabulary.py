"""Words that several rules read: months, weekdays, numbers, denials, kin.

Patterns are written in lower case. English, German and Spanish stand side by side, as a
text does not say which it is. Only `agrees` knows a sentence.
"""

from __future__ import annotations

import re
from typing import Final


def any_of(*lines: str) -> str:
    """Return a pattern of the words that blanks separate in the arguments, the longest first."""
    words = {word for line in lines for word in line.split()}
    return rf"(?:{'|'.join(sorted(words, key=lambda word: (-len(word), word)))})"


# -- calendar --------------------------------------------------------------------------

MONTHS: Final = {
    "en": "january february march april may june july august september october november december",
    "de": "januar februar märz april mai juni juli august september oktober november dezember",
    "es": (
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ),
}
"""Full names of the months, in order."""
WEEKDAYS: Final = {
    "en": "monday tuesday wednesday thursday friday saturday sunday",
    "de": "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
}
"""Full names of the days of a week, in order."""
_MONTHS: Final = {
    name[:3]: number
    for line in MONTHS.values()
    for number, name in enumerate(line.split(), 1)
} | {"jän": 1, "set": 9}  # fmt: skip
_WEEKDAYS: Final = {
    name[:3]: number for line in WEEKDAYS.values() for number, name in enumerate(line.split())
} | {"mie": 2, "sab": 5}


def month_number(word: str) -> int:
    """Return 1 for "January", "jan", "Jan." and "enero"."""
    return _MONTHS[word[:3].lower()]


def weekday_number(word: str) -> int:
    """Return 0 for "Monday", "mon", "Montag" and "lunes"."""
    if word[:5].lower() == "sonna":  # Sonnabend
        return 5
    return _WEEKDAYS[word[:3].lower()]


# -- numbers ---------------------------------------------------------------------------

SMALL_NUMBERS: Final = {
    "en": (
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
        " sixteen seventeen eighteen nineteen"
    ),
    "de": "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "es": "un dos tres cuatro cinco seis siete ocho nueve diez once doce",
}
"""Names of the numbers from 1 on."""
TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
COUNTS: Final = {
    word: number
    for line in SMALL_NUMBERS.values()
    for number, word in enumerate(line.split(), 1)
} | {word: 10 * number for number, word in enumerate(TENS.split(), 2)}  # fmt: skip
"""Numbers by their names."""
NUMBER: Final = re.compile(
    r"\d+(?:[.,:]\d+)*"
    rf"|\b{any_of(SMALL_NUMBERS['en'], TENS, 'hundred thousand')}\b",
    re.I,
)
"""A number in digits or in an English word."""

RECURS: Final = re.compile(
    r"\b(?:birthday|anniversary|every|each(?!\s+other)|weekly|daily|monthly|yearly|annually|(?:mon|tues|wednes|thurs|fri|satur|sun)days"
    r"|geburtstag|hochzeitstag|jahrestag|jede[nsmr]?|cumpleaños|aniversario|cada|todos\s+los|todas\s+las)\b",
    re.I,
)
"""What comes again each year, week or day."""

# -- denial ----------------------------------------------------------------------------

NEGATION: Final = re.compile(
    r"n['’]t\b|\b(?:not?|never|none|nothing|nobody|no-one|neither|nor|without|cannot|longer"
    r"|any\s*more|used\s+to|stopped|quit|gave\s+up|given\s+up"
    r"|nicht|kein(?:e[nmrs]?)?|nie|niemals|niemand|nichts|ohne|aufgehört"
    r"|nunca|jamás|nada|nadie|ninguna?|ningún|tampoco|sin|ya\s+no|dej[éóo]\s+de)\b",
    re.I,
)
"""Words by which a clause denies, or ends, what it names."""

GAP: Final = " … "
"""Stands for the words left out between a subject and its verb."""
CORRECTS: Final = " (This corrects: "
"""Stands between the words of a correction and those that it takes the place of."""

# -- agreement -------------------------------------------------------------------------

_YES: Final = (
    "yes yeah yep yup yea ye exactly correct indeed absolutely definitely certainly agreed"
    " affirmative ja jaja jawohl jo jep genau stimmt richtig korrekt absolut unbedingt sí exacto"
    " correcto cierto efectivamente afirmativo oui"
)
CONSENT: Final = frozenset(
    f"""{_YES}
    si ok okay k sure fine alright right good great perfect lovely super works ahead totally
    true please bet guest may can appreciate agree objections objection problem mhm uh-huh why
    course means do done go huh like love i'm sense recht sinn gusto thing klar natürlich
    selbstverständlich gern gerne sicher einverstanden ordnung passt alles gut bitte mach mache
    tu nur meinetwegen aus warum fall dagegen raus perfekt freilich dafür toll darfst kannst
    kann schon gute idee idea claro vale dale adelante supuesto acuerdo perfecto hazlo hágalo
    bien luego mí problema seguro venga puedes puede fuera qué cómo agradezco agradecería
    totalmente razón encantada encantado así eso buena nice cool awesome excellent wonderful
    brilliant glad happy want deal approved granted permission confirm confirmed cheers roger
    aye prima wunderbar logo bestätigt bestätige genehmigt erlaubt gefällt freue freuen will
    darum wunsch gewünscht genial estupendo excelente conforme confirmo confirmado quiero pido
    ruego encantaría gustaría deseo gusta hacemos haz""".split()
)
"""Words that agree to a proposal; see `COURTESY`."""
COURTESY: Final = frozenset(
    """
    oh ah ach well hm hmm hmmm uh so then now on for it its it's that that's this thats is by
    all i i'd i'll you we be my me with of the would will no not very thank thanks much get got
    rid think just too any them are and a don't mind him her one sounds up out na ja das es du
    den die damit ich ist wäre von mir in auf jeden ruhig mal doch dir danke sehr zu nichts kein
    nicht ganz immer machen tun denke sie ihn bin habe hast da also aber macht makes mucho did
    if what were völlig wird ay te wir eso lo la los el está se que de por favor con sin hay muy
    pues bueno todo desde hacerlo y sigue dices sagst weiter say as do wie und parece mi gracias
    creo tienes ya usted""".split()
)
"""Words that may stand beside those in the first clause of an agreement."""
RETRACTION: Final = re.compile(
    r"\b(?:forget|delete|remove|erase|discard|scrap|cancel|cancell?ed|sold|stopped|quit"
    r"|no longer|any ?more|never ?mind|gave up|given up|got rid of|get rid of|vergiss|vergesst"
    r"|lösch(?:e|t|en)?|entfern(?:e|t|en)?|streich(?:e|t|en)?|verwirf|verwerfe|verkauft"
    r"|gekündigt|aufgegeben|abgesagt|olvid[aeo]|olvíd\w+|b[oó]rr(?:[aeo]|al[oa]s?)"
    r"|elim[ií]n(?:[aeo]|al[oa]s?)|quita(?:l[oa]s?)?|quít[ae]l[oa]s?|suprim[aeo]|descart[aeo]"
    r"|vendí|vendid[oa]|cancel[aeoé])\b",
    re.I,
)
"""Words by which somebody takes back what memory holds."""
PROPOSAL: Final = re.compile(
    r"\b(?:drop\b(?! (?:me|you|by|in|off|out)\b)|wipe|purge|unlearn|strike|stop (?:remember"
    r"|keep|track|not)ing|(?:clear|(?:take|cross|throw|leave)\b[^.?!]{1,60}?\b(?:out|off"
    r"|away))(?=[^.?!]{0,60}\b(?:from|notes?|memory|list|profile|records?)\b)|(?:is"
    r"|are) history|out ?dated|out of date|obsolete|(?:delet|remov|eras|forgett|discard|dropp"
    r"|clear|scrapp)ing|vergessen|gelöscht|entfernt|gestrichen|weg|(?:he)?raus(?:nehmen"
    r"|werfen)?|verwerfen|verschwinden|tilgen|beseitigen|ist (?:also )?geschichte|veraltet"
    r"|überholt|(?:borrar|eliminar|olvidar|quitar|suprimir|descartar|tachar)(?:l[oa]s?|ía)?"
    r"|tach[oe]|quit[eo](?= (?:el|la|lo|esto|eso)\b)|dej[oae]r? de (?:recordar|guardar|anotar)"
    r"|anticuad[oa]|obsolet[oa])\b",
    re.I,
)
"""Words by which an assistant proposes a retraction; less sure than those above."""
HOLD: Final = re.compile(
    r"(?<!tiempo que )\bno\b(?! (?:problem|objection|doubt|worr|longer|more\b|need\b|hay\b"
    r"|hace falta|l[oa]s? necesito|necesito|me hace|me importa|importa|es verdad|es cierto"
    r"|l[oa]s? tengo|tengo|existe|vivo|trabajo))|\b(?:nope|nah|wait|hold (?:on|it)|hang on|stop"
    r"|later|tomorrow|until|till|unless|maybe|perhaps|possibly|might|depends?|unsure|rather"
    r"|keep(?!ing)|keeps|stay|leave|untouched|undo|actually|whatever|dare|ha ?ha\w*|funny"
    r"|dreams|as if|let['’]?s|let me|think about|changed my mind|i ?still|is still|only (?:if"
    r"|when)|at the moment|ask (?:me|my)|while you are at it|i heard|(?:['’]ll|will|me) see"
    r"|talk|safe|take care|favou?rite|heb|cuíd\w*|first(?! thing)|nein|nee|nö|niemals"
    r"|keinesfalls|keine[nm]? (?:fall|umständen)|warte\w*|moment|stopp|später|morgen|vielleicht"
    r"|eventuell|mal sehen|überleg\w*|behalt\w*|lieber|bloß|träum\w*|witzig|noch(?! nie)|wenn"
    r"|falls|bevor|erst|rückgängig|finger weg|darauf an|anders überlegt|wieso|prefer|möchte"
    r"|and then|und dann|y luego|aber(?! (?:gern|ja|klar|natürlich|sicher))|espera\w*|todavía"
    r"|aún|quizás?|tal vez|más tarde|mañana|déj[ae]\w*|guárd[ae]\w*|conserv\w*|consérv\w*"
    r"|momento|ni (?:hablar|se|en|loc)|qué va|depende|ningun[oa]?|ningún|pensar\w*|veremos"
    r"|mejor|deshaz\w*|hombre|gracios[oa]|opinión|sigue siendo|sigo|pero|sólo si|solo si)\b"
    r"|\bif\b(?! you (?:like|wish|want|think so|please|don['’]?t mind)\W*$)|(?:,|\bsí) si\b"
    r"|(?:^|[,.!;]) *(?:please |bitte |por favor )?(?:remember|halt|para|luego"
    r"|not(?! a problem))\b|\b(?:never|nunca|jamás)\b(?=\W*(?:$|[,.!;]))|(?:^|[,.!;]"
    r"|please) *(?:don['’]?t|do not)\b(?! (?:need|want|have|own|live|work|use|like)\b)|\b(?:may"
    r"|should|must|can|could|would|absolutely|definitely|certainly|surely|course)(?:n['’]?t"
    r"| ?not)\b|\bnot (?:yet|now|really|sure|so|today|at all|necessarily|ever|right now)\b"
    r"|(?<!warum )\bnicht\b(?! (?:mehr|weiter|nötig|länger))|^\W*(?:\w+\W+){1,3}but\b"
    r"|^\W*(?:how|what|why|who|when|where|was|wer|wann|wo)\b"
    r"|\blass\b(?!.{0,80}\b(?:verschwinden|weg|raus)\b)|^\W*(?:can|could|would|will|kannst"
    r"|könntest|würdest)\b|[\U0001F644\U0001F612\U0001F928\U0001F602\U0001F621]",
    re.I,
)
"""Words by which a reply that seems to agree withholds its agreement, or delays it."""
KEEPING: Final = re.compile(
    r"(?:\b(?:do|does|did|will|would|shall|should|could|can|must|may|have|has|had|is|are"
    r"|was)(?:n['’]?t|\s+not|\s+never)|\b(?:can|ca|wo|do)n?['’]?t|\bcannot|\bnever|\bnot"
    r"|\bwithout|\bdid you)(?:\s+(?:ever|you|please|let|me|us|to|want|even|dare|just|yet|try"
    r"|have|touch|or|and))*\s+(?:forget|delete|remove|erase|discard|scrap|cancel|cancell?ed"
    r"|sold|sell|stopped|stop|quit|give up|given up|forgetting|deleting|removing|cancell?ing"
    r"|selling|stopping|quitting)\b|\bno need to \w+\b|\bdon['’]?t you\b|\b(?:nicht(?! mehr)"
    r"|nie|niemals)(?:,? dass)?(?: \w+){0,6}?(?: delete)? (?:lösch|vergess|vergiss|entfern"
    r"|streich|verwerf|verkauf|delete\b)\w*|\b(?:lösch|vergiss|vergesst|entfern|streich"
    r"|delete\b)\w*(?: \w+){0,5}? (?:nicht(?! mehr)|nie)\b|(?<!ya )\b(?:no|nunca"
    r"|jamás)(?: \w+){0,4}?(?: delete)? (?:b[oó]rr|olv[ií]d|elim[ií]n|qu[ií]t|suprim|descart"
    r"|delete\b)\w*(?: nunca\b| jamás\b)?|^\W*(?:no|nein|nope|nee)\b(?=.*\b(?:keep|leave|still"
    r"|behalt\w*|lass|noch|déj\w*|guárd\w*|consérv\w*|todavía)\b)",
    re.I,
)
"""A retraction that is itself denied: "don't forget my meeting"."""
# Words that say yes, whatever else their clause says.
_AGREEMENT: Final = re.compile(rf"\W*{any_of(_YES)}\b", re.I)
# Words that agree to a statement, or after the first words of a reply.
_SO: Final = re.compile(
    r"\W*(?:(?:that|you)['’]?(?:s|re) (?:right|correct|true)|please do|do (?:it|that|so)"
    r"|go (?:ahead|for it)|(?:mach|tu) (?:das|es)|hazlo|adelante)\b",
    re.I,
)
_GLADLY: Final = re.compile(
    r"¿?\b(?:why not|warum nicht|por qué no|cómo no)\b\??|[\U0001F44D\U0001F44C\U00002705]",
    re.I,
)
_ADVERB: Final = re.compile(r"\b(?!lovely)\w{3,}(?:ly|mente)\b")
_CLAUSE: Final = re.compile(r"[,.!;:…¡\n]+|\s[-–—]+\s")
WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")

READ_CHARS: Final = 2_000  # of an utterance are read for agreement


def agrees(reply: str, *, asked: bool) -> bool:
    """Tell whether a reply agrees with a statement, or where it was `asked`, with a proposal."""
    text = _GLADLY.sub(" ok ", reply[:READ_CHARS])
    if "?" in text or HOLD.search(text) or KEEPING.search(text):
        return False
    willing = True
    for clause in filter(str.strip, _CLAUSE.split(text)):
        if _AGREEMENT.match(clause) or (not (asked and willing) and _SO.match(clause)):
            return True
        plain = PROPOSAL.sub("do", RETRACTION.sub("do", clause.lower()))
        words = frozenset(WORD.findall(_ADVERB.sub("", plain)))
        willing &= words <= CONSENT | COURTESY
        if asked and willing and words & CONSENT:
            return True
    return False


# -- kin -------------------------------------------------------------------------------

KIN: Final = any_of(
    "mother mom mum father dad parents sister brother sibling son daughter child children kids",
    "baby husband wife partner boyfriend girlfriend fiance fiancé fiancée grandma grandpa",
    "grandmother grandfather grandparents aunt uncle cousin niece nephew friend roommate",
    "flatmate neighbour neighbor boss colleague coworker ex",
)
"""People named by what they are to somebody."""

# -- what comes beside, and what turns -------------------------------------------------

BESIDE: Final = re.compile(
    r"\b(?:also|too|another|second|as\s+well|besides|in\s+addition|plus|number\s+two|company"
    r"|auch|noch\s+ein\w*|dazu|zusätzlich|außerdem|zweite[nrms]?|gesellschaft"
    r"|también|otr[oa]s?|además|hermanit[oa])\b",
    re.I,
)
"""Words of a second thing beside the first."""
TURNING: Final = re.compile(
    r"\b(?:longer|any\s*more|moved\s+(?:out|to|into)|sold|gave\s+up|given\s+up|quit|instead"
    r"|retired|cancel\w*|is\s+over|history|dead|died|buried|done\s+with|switched|new|now|finally"
    r"|mehr|verkauft|gekündigt|aufgehört|statt|jetzt|nun|neue[rsnm]?|vorbei|gestorben|endlich"
    r"|ya\s+no|vend[íi]\w*|dej[éo]|ahora|nuev[oa]|murió|en\s+vez)\b",
    re.I,
)
"""Words of a state that ended, or of one that began."""
STAYING: Final = re.compile(
    r"\b(?:still|stays?|staying|goes\s+on|greetings\s+from|holiday|vacation|weekend|visiting"
    r"|immer\s+noch|noch\s+immer|bleib\w*|weiterhin|grüße\s+aus|urlaub|zu\s+besuch"
    r"|sig(?:o|ue|uen)|seguimos|todavía|aún|saludos\s+desde|vacaciones|volvemos)\b",
    re.I,
)
"""Words of a state that goes on, and of one that is only a visit."""
OF_KIN: Final = re.compile(
    r"^\W*(?:(?:and|but|so|und|aber|y|pero)\s+)?(?:my|our|the|his|her|mein\w*|unser\w*|mi"
    rf"|nuestr[oa]|el|la)\s+(?:\w+\s+)?({KIN}|bruder|schwester|mutter|vater|mann|frau|sohn|tochter"
    r"|opa|oma|freundin|chef|nachbar|hermano|hermana|madre|padre|hij[oa]|prim[oa]|marido"
    r"|esposa|mujer|jef[ea]|vecin[oa]|abuel[oa])\b",
    re.I,
)
"""A beginning whose subject is a relative of the speaker."""
FIRST_PERSON: Final = re.compile(
    r"\b(?:i|me|my|we|us|our|ich|mich|mir|mein\w*|wir|uns|unser\w*|yo|mis?|nos|nuestr[oa]s?)\b",
    re.I,
)
"""Words by which speakers name themselves."""
