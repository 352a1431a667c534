"""The tense around a time: whether its clause reports, plans, or leaves it open.

Grammar leaves it to the clause whether "on Friday" is the last one or the next. A thing
moved, set or booked *to* a time lies ahead, whatever the tense of the verb. Then marks
of a plan decide ("we will", "is leaving"), then a verb of the past, then a verb of the
present or a noun of plans ("appointment", "exam"). The clause is read first, the whole
sentence only where the clause is silent. English, German and Spanish in plain forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memagent.timex.calendar import Lean

_DOING = r"(?:\s+(?!been\b)\w+)?\s+(?!\w*(?:thing|amazing|exciting|interesting|boring)\b)\w+ing"
_FUTURE_CUE = re.compile(
    r"\b(?:will|won['’]t|shall|gonna|going\s+to|about\s+to|plan(?:s|ning)?\s+(?:to|on|for)|planned|see\s+you|upcoming"
    r"|coming\s+up|looking\s+forward|can['’]t\s+wait|hop(?:e|ing)\s+to|wants?\s+to|needs?\s+to|let(?:['’]s|\s+us)|scheduled|booked|starts|leaves|due"
    rf"|(?:am|is|are|['’](?:m|re|s)){_DOING}|(?:is|are|['’](?:s|re))\s+(?:on|in)"
    r"|werde|wirst|wird|werden|werdet|soll(?:en)?|vorhabe|voy\s+a|va\s+a|vamos\s+a|van\s+a"
    r"|(?!para)\w{2,}(?:[aei]ré|[aei]rá|[aei]rán|[aei]remos))\b|['’]ll\b"
    r"|(?:\b(?:is|are)|['’](?:s|re))\s+\Z"
)
_FUTURE_AFTER = re.compile(
    rf",?\s+\w+(?:['’]ll\b|\s+(?:will|won['’]t|shall)\b|(?:['’](?:m|re|s)|\s+(?:am|are|is)){_DOING}\b)"
)
_MOVED_TO = re.compile(
    r"\b(?:(?:re)?(?:scheduled?|booked)|moved|postponed|pushed|delayed|deferred|shifted|changed|brought|put|set|fixed|planned"
    r"|reserved|arranged|announced|registered|invited|signed\s+up|tickets?|reservation|appointment|table|book(?:ing)?|(?:re)?schedule)\b"
    r"[^.!?;]{0,60}\b(?:to|for|until|till)\s+(?:the\s+)?\Z"
    r"|\b(?:auf|für|zum)\s+(?:de[nm]\s+)?\Z|\b(?:para|al?|hasta)\s+(?:el\s+)?\Z"
)
_MOVED_AFTER = re.compile(
    r"[^.!?;]*\b(?:verschoben|verlegt|gebucht|reserviert|geplant|angesetzt|vereinbart|festgelegt)\b"
)
_FORWARD_NOUN = re.compile(r"\b(?:tickets?|signed\s+up|registered|announced|gebucht|reserviert)\b")
_CLAUSE_END = re.compile(r"[.!?;\n]+(?=\s|\Z)")
_CLAUSE = re.compile(
    r",\s|\s-\s|\b(?:(?:but|because|though|while|so|aber|weil|pero|porque)\b|and\s+(?=(?:i|we|he|she|they|it)\b))"
)
_SINCE = re.compile(r"\b(?:since|seit|desde)\s+(?:the\s+|de[mnr]\s+|el\s+)?\Z")
_DEADLINE = re.compile(
    r"\b(?:until|till|by|bis|hasta)\s+(?:the\s+|zum\s+|el\s+)?(?:(?:early|mid|late|(?:beginning|start|middle|end)\s+of)[\s-]+(?:the\s+)?)?\Z"
)
_PAST_CUE = re.compile(
    r"\b(?:was|were|wasn|weren|did|didn|had|hadn|been|went|took|made|got|gave|came|became|began|broke|brought|built|bought|caught|chose"
    r"|drew|drank|drove|ate|fell|felt|fought|found|flew|forgot|froze|grew|hung|heard|held|hid|hit|hurt|kept|knew|laid|led|left|lent|lost|met|paid|proposed"
    r"|ran|rang|rode|rose|said|sang|sat|saw|sold|sent|shot|slept|sold|spent|spoke|stole|stood|swam|taught|told|thought|threw|tore"
    r"|understood|woke|wore|won|wrote|quit|cut|put|set|gone|done|seen|born|used\s+to"
    r"|(?!(?:need|exceed|excit|interest|tir|worri|suppos|bas|schedul|plann|book|hundr|inde|proce|succe|spe|fe|se|we|be)ed\b)\w+ed"
    r"|war(?:en|st)?|hatten?|wurden?|ging(?:en)?|kam(?:en)?|fuhr(?:en)?|flog(?:en)?|traf(?:en)?|sah(?:en)?|zog(?:en)?|began+(?:en)?|gab(?:en)?"
    r"|fand(?:en)?|blieb(?:en)?|bekam(?:en)?|starb(?:en)?|lief(?:en)?|verlor(?:en)?|schrieb(?:en)?|gewann(?:en)?|fing(?:en)?|brach(?:te)?n?|rief(?:en)?"
    r"|(?:heirat|feier|kauf|mach|besuch|arbeit|wohn|lern|reis|start|verpass|eröffn|stell|hol|spiel|zeig|erleb|kündig|wechsel|end)e?ten?"
    r"|(?:hab(?:e|en|t)?|ha(?:t|st)|bin|bist|ist|sind|seid)\b[^.!?;]{0,80}?\b(?:\w{0,5}ge(?!gen|rn|nau|rade|meinsam|burtstag|schäft)\w+(?:t|en)|(?:be|ver|er|ent|zer|über|unter)\w+(?:t|en)|\w+iert)"
    r"|fui|fue|fuimos|fueron|estuv\w+|tuv(?:e|o|imos|ieron)|hice|hizo|hicimos|hicieron|vi|vio|vimos|vieron|di|dio|dimos|nac(?:í|ió)|era|eran|estaba\w*|tenía\w*|había\w*"
    r"|vivía\w*|(?!porqué|café|bebé|qué)\w{2,}(?:é|ó|aron|ieron|imos|aste|iste)|(?!aquí|ahí|allí|así|sí\b|mí\b)\w{2,}í|(?:he|has|ha|hemos|han)\s+\w+(?:ado|ido|cho|to))\b"
)
_PRESENT = re.compile(
    r"\b\w+\s+(?:leaves?|fl(?:y|ies)|goes|go|meets?"
    r"|starts?|begins?|arrives?|returns?|moves?|travels?|opens?|closes?|ends?|departs?|comes?|lands?|takes?\s+place|runs?\s+out|runs?"
    r"|sails?|expires?|retires?|marr(?:y|ies)|graduates?|visits?|turns?|ha(?:ve|s)|date\s+is|is|are)\b"
    r"|\b(?:fliege[nt]?|fahre[nt]?|fährt|ziehe[nt]?|zieht|heirate[nt]?|beginn(?:e|en|t)|fange[nt]?|fängt|start(?:e|en|et)|komm(?:e|en|t)"
    r"|mache[nt]?|macht|treffe[nt]?|trifft|gehe[nt]?|geht|hab(?:e|en|t)|hat|ist|sind|findet|feier(?:e|n|t)|reise[nt]?|reist|besuche[nt]?|besucht|bekomm(?:e|en|t)"
    r"|will|wollen|möchte[nt]?|läuft|endet|öffnet|schließt|muss|müssen|wechs(?:le|elt|eln)|bring(?:e|en|t)|arbeite[nt]?|arbeitet|geben|gibt"
    r"|viajo|viaja|viajan|voy|va|van|vamos|tengo|tiene|tenemos|tienen|empiez(?:o|a|an)|comienz(?:o|a|an)|termin(?:o|a|an)|vence|es|son|salgo|sale|salen"
    r"|llega|llegan|llego|me\s+mudo|se\s+muda|me\s+caso|se\s+casa[n]?|vuelo|vuelvo|vuelve|quiero|queremos|quiere|debo|hay|abre|cierra|visito|visita|viene[n]?)\b"
)
_PLAN_NOUN = re.compile(
    r"\b(?:tickets?|appointments?|deadline|exams?|holidays?|vacation|wedding|due|interview|flight|trip|conference|meeting|surgery"
    r"|operation|reservation|booking|concert|save\s+the\s+date|termin|hochzeit|prüfung|urlaub|frist|fällig|flug|reise|cita|boda|examen|vacaciones|vuelo|viaje|reunión|plazo|entradas)\b"
)
_YEARLY = re.compile(
    r"\b(?:birthday(?!\s+(?:party|dinner|trip))|anniversary|every|each|always|usually|often|geburtstag|jedes|jeden|immer|cumpleaños|cada|siempre|from|aus|de)\b"
)


def direction(lowered: str, start: int, end: int) -> Lean:
    """Return the side on which the clause around a phrase at `[start, end)` puts it."""
    before = _CLAUSE_END.split(lowered[max(0, start - 160) : start])[-1]
    after = _CLAUSE_END.split(lowered[end : end + 120])[0]
    if _SINCE.search(before):
        return Lean.PAST
    if _MOVED_TO.search(before) or (_MOVED_AFTER.match(after) and before.endswith(" im ")):
        return Lean.FUTURE
    clause = _CLAUSE.split(before)[-1], _CLAUSE.split(after)[0]
    near = _tense(*clause)
    if near is None and _FUTURE_AFTER.match(lowered, end):
        return Lean.FUTURE
    return near or _tense(before, after) or Lean.OPEN


def _tense(before: str, after: str) -> Lean | None:
    both = f"{before} \x00 {after}"
    if _FORWARD_NOUN.search(before) and not re.search(r"\bw(?:as|ere)\b", both):
        return Lean.FUTURE
    past = _PAST_CUE.search(both)
    if _FUTURE_CUE.search(before) and not (_YEARLY.search(both) and _IS_ON.search(before)):
        return Lean.FUTURE
    if past:
        return Lean.PAST
    if _FUTURE_CUE.search(after):
        return Lean.FUTURE
    if _YEARLY.search(both):
        return Lean.OPEN
    if _DEADLINE.search(before) or _PRESENT.search(both) or _PLAN_NOUN.search(both):
        return Lean.FUTURE
    return None


_IS_ON = re.compile(r"\b(?:is|are|['’](?:s|re))(?:\s+(?:on|in)(?:\s+the)?)?\s*\Z")


def moved_to(lowered: str, start: int) -> bool:
    """Tell whether something was moved or set to the time that begins at `start`."""
    return _MOVED_TO.search(lowered, max(0, start - 100), start) is not None


def leans_future(lowered: str, start: int, end: int) -> bool:
    """Tell whether the clause around a phrase at `[start, end)` speaks of a plan."""
    return direction(lowered, start, end) is Lean.FUTURE


def direction_told(told: Sequence[str], phrase: str) -> Lean:
    """Return the direction that texts give a phrase: the first that holds it, else the last."""
    texts, named = [text.lower() for text in told], phrase.lower()
    for text in texts:
        if (start := text.find(named)) >= 0:
            return direction(text, start, start + len(named))
    return direction(texts[-1], len(texts[-1]), len(texts[-1])) if texts else Lean.OPEN
