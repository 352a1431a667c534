"""The evidence that ops rest on: which turns they cite, and how far these are trusted.

Citing a trusted turn does not launder an untrusted one. Where the proposer also read
texts of tools or strangers, in the chunk or among the memories shown, an op has the
trust of its cited turns only if their words back what it would change (`backing`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from memagent.core.ops import Delete, OpLimits, RejectReason, Update
from memagent.core.records import Chunk, Fact, MemoryItem, Trust, Turn, lowest_trust
from memagent.state.backing import (
    Words,
    backs_addition,
    backs_change,
    backs_deletion,
    confirmed,
    questions_in,
    steers,
    takes_back,
)
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

NO_IDS: Final[frozenset[str]] = frozenset()


class Refused(Exception):
    """An op that may not be carried out."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Evidence:
    """The chunk that ops rest on, asked about the turns they cite."""

    def __init__(
        self, chunk: Chunk | None, actor_trust: Trust, visible: Mapping[str, MemoryItem]
    ) -> None:
        self.chunk = chunk
        self.actor_trust = actor_trust
        self.turns: dict[str, Turn] = {turn.id: turn for turn in chunk.turns} if chunk else {}
        self._read: list[tuple[Trust, str]] = [
            *((turn.trust, turn.said) for turn in self.turns.values()),
            *((item.trust, item.text) for item in visible.values()),
        ]
        """Every text that the proposer read, with its trust."""
        self._words: dict[tuple[str, ...], Words] = {}
        self._terms: dict[str, frozenset[str]] = {}

    def cited(
        self, ids: Iterable[str], *, older: Container[str] = NO_IDS, speaker: str | None = None
    ) -> tuple[str, ...]:
        """Return the cited turns, each once and in the chunk's order.

        When none is cited and only one can be meant, it is that one. `older` are turns
        of earlier chunks that an item rests on already: they may be named and are left
        out.
        """
        if self.chunk is None:
            return tuple(dict.fromkeys(ids))
        named = dict.fromkeys(
            turn_id for turn_id in ids if turn_id in self.turns or turn_id not in older
        )
        foreign = [turn_id for turn_id in named if turn_id not in self.turns]
        if foreign:
            raise Refused(
                RejectReason.FOREIGN_TURN,
                f"turn {foreign[0]!r} is not part of chunk {self.chunk.id!r}",
            )
        if not named:
            able = [
                turn.id
                for turn in self.chunk.turns
                if speaker is None or folded(turn.speaker) == folded(speaker)
            ]
            return (able[0],) if len(able) == 1 else ()
        return tuple(turn_id for turn_id in self.chunk.turn_ids if turn_id in named)

    def require(self, ids: Sequence[str], limits: OpLimits) -> None:
        """Refuse an op that rests on no turn where turns are required."""
        if self.chunk is not None and limits.require_sources and not ids:
            raise Refused(
                RejectReason.FOREIGN_TURN,
                "cites no turn of the chunk, and more than one could be meant",
            )

    def speaker(self, stated: str | None, ids: Sequence[str]) -> str | None:
        """Return the speaker of the cited turns, in the chunk's spelling."""
        if self.chunk is None:
            return stated
        spoken = list(dict.fromkeys(self.turns[turn_id].speaker for turn_id in ids))
        known = spoken or list(dict.fromkeys(turn.speaker for turn in self.chunk.turns))
        if stated is None:
            return spoken[0] if len(spoken) == 1 else None
        match = next((name for name in known if folded(name) == folded(stated)), None)
        if match is None:
            raise Refused(
                RejectReason.FOREIGN_SPEAKER,
                f"{stated!r} did not say the cited turns; {', '.join(map(repr, known))} did",
            )
        return match

    def said_at(self, ids: Sequence[str], stated: datetime | None) -> datetime | None:
        """Return the latest date among the cited turns."""
        if self.chunk is None:
            return stated
        dates = [self.turns[turn_id].at or self.chunk.at for turn_id in ids]
        return max(filter(None, dates), default=stated)

    def trust_of_addition(self, fact: Fact, ids: Sequence[str]) -> Trust:
        """Return the trust in a new text."""
        return self._trust(
            ids,
            lambda words, suspects: backs_addition(
                words, fact.text, suspect=self._terms_of(suspects), valid=fact.valid
            ),
        )

    def trust_of_change(self, item: MemoryItem, op: Update | Delete, ids: Sequence[str]) -> Trust:
        """Return the trust in a new wording or a deletion of an item.

        A suspect text that names the item by its id is behind the op in any case. What an
        assistant said changes what a user said only if the user confirms it.
        """

        def backs(words: Words, suspects: Sequence[str]) -> bool:
            if any(item.id in text for text in suspects):
                return False
            if isinstance(op, Delete):
                return backs_deletion(words, item.text)
            valid = op.valid if op.valid != item.valid else None
            return backs_change(words, old=item.text, new=op.text.strip(), valid=valid)

        level = self._trust(ids, backs)
        if self.chunk is None or item.trust.rank > Trust.USER.rank:
            return level
        own = self._own_words(ids)
        willed = own is not None and (
            takes_back(own, item.text) if isinstance(op, Delete) else backs(own, ())
        )
        if level is Trust.ASSISTANT:
            return Trust.USER if willed else level
        spoken = [text for trust, text in self._read if trust is Trust.ASSISTANT]
        if level.rank > Trust.USER.rank or not spoken or willed:
            return level
        new = "" if isinstance(op, Delete) else op.text
        known = own.terms if own is not None else frozenset[str]()
        return Trust.ASSISTANT if steers(spoken, old=item.text, new=new, known=known) else level

    def _own_words(self, ids: Sequence[str]) -> Words | None:
        """Return the user's cited words, and those of an assistant that the user confirmed.

        None where a cited turn is an assistant's and was not confirmed in the next one.
        """
        assert self.chunk is not None
        turns = self.chunk.turns
        said: list[str] = []
        asked: list[str] = []
        answered: set[str] = set()
        for before, turn in zip((None, *turns), turns, strict=False):
            heard = before is not None and before.trust is Trust.ASSISTANT
            if turn.trust.rank > Trust.USER.rank:
                continue
            confirms = confirmed(before.said, turn.said) if before is not None and heard else ""
            if confirms and before is not None and {before.id, turn.id} & set(ids):
                answered |= {before.id, turn.id}
                said += [confirms]
                asked += [""]
            if turn.id in ids or turn.id in answered:
                answered.add(turn.id)
                said.append(turn.said)
                asked.append(questions_in(before.said) if before is not None and heard else "")
        names = dict.fromkeys(turn.speaker for turn in turns if turn.trust.rank <= Trust.USER.rank)
        return Words(tuple(said), tuple(names), tuple(asked)) if answered >= set(ids) else None

    def _trust(self, ids: Sequence[str], backs: Callable[[Words, Sequence[str]], bool]) -> Trust:
        """Return the lowest trust among the cited turns, or all when none is cited.

        Where the proposer read texts of tools or strangers that are trusted less, and
        the cited turns do not back the op, it is the lowest trust among these.
        """
        if self.chunk is None:
            return self.actor_trust
        cited = [self.turns[turn_id] for turn_id in ids] or list(self.chunk.turns)
        level = lowest_trust(turn.trust for turn in cited)
        floor = max(level.rank, Trust.ASSISTANT.rank)
        suspects = [(trust, text) for trust, text in self._read if trust.rank > floor]
        if not suspects or backs(self._words_of(cited), [text for _, text in suspects]):
            return level
        return lowest_trust(trust for trust, _ in suspects)

    def _words_of(self, cited: Sequence[Turn]) -> Words:
        key = tuple(turn.id for turn in cited)
        if key not in self._words:
            trusted = (turn for turn in self.turns.values() if turn.trust.rank <= Trust.USER.rank)
            speakers = dict.fromkeys(turn.speaker for turn in (*cited, *trusted))
            self._words[key] = Words(tuple(turn.said for turn in cited), tuple(speakers))
        return self._words[key]

    def _terms_of(self, texts: Sequence[str]) -> frozenset[str]:
        for text in texts:
            if text not in self._terms:
                self._terms[text] = frozenset(tokenize(text))
        return frozenset[str]().union(*(self._terms[text] for text in texts))
