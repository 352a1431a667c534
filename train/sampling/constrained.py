"""Replies held to a JSON Schema while they are sampled.

After each token only those may come that still lead to a valid reply.

The schema becomes a regular expression and that an automaton over the tokenizer's
tokens (outlines-core). Two things are added. Every state knows how many tokens the
shortest way to a complete reply takes, so no token leads into a dead end, and a reply
is brought to its end before `max_tokens` cuts it off. And a tokenizer whose decoder
decides by the neighbour whether a space stands between two tokens (our word tokenizers)
is followed exactly: an automaton state goes with the space that the last token asks
for.

Keys come in the schema's order. A tokenizer that knows no capitals gets the schema's
words in lower case. Tokenizers that are neither byte-level nor word-level are refused.

    pip install "memagent[constrained]"
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

from memagent.core.errors import ConfigError
from train.sampling.generation import TokenMask

_SPACE: Final = " ?"
"""Between JSON's own signs."""
_OPEN, _SPACED = 0, 1
"""Whether the next token follows the last one at once, or after a space."""


@dataclass(frozen=True, kw_only=True)
class _Spelling:
    """Bytes that each of V tokens adds to the text.

    They are empty for a token that adds nothing or is special.
    """

    leaning: list[bytes]
    """Bytes of a token right after the last one."""
    spaced: list[bytes]
    """Bytes of a token after one that asks for a space; for byte-level tokenizers the same
    as `leaning`.
    """
    asks: np.ndarray
    """(V,) `_OPEN` or `_SPACED`: whether a space follows the token."""


@dataclass(frozen=True, kw_only=True)
class _State:
    """A state of the automaton: the tokens that may follow and where they lead."""

    tokens: np.ndarray
    needs: np.ndarray
    """Tokens that a complete reply takes at least with each of them, itself included."""
    leads: dict[int, int]
    final: bool


class SchemaMask:
    """A `TokenMask` that walks the automaton of one schema; one for each reply."""

    def __init__(
        self, states: Mapping[int, _State], start: int, *, eos_id: int, max_tokens: int
    ) -> None:
        self._states = states
        self._at = start
        self._eos_id = eos_id
        self._left = max_tokens

    def allowed(self, size: int) -> torch.Tensor:
        """Return (V,) bool for the next position.

        It is never empty. It keeps the reply within `max_tokens` where that is possible
        at all.
        """
        allowed = torch.zeros(size, dtype=torch.bool)
        state = self._states[self._at]
        if len(state.tokens):
            reach = max(self._left, int(state.needs.min()))
            allowed[torch.from_numpy(state.tokens[state.needs <= reach])] = True
        if state.final:
            allowed[self._eos_id] = True
            if self._left <= 0:
                allowed[:] = False
                allowed[self._eos_id] = True
        return allowed

    def accept(self, token_id: int) -> None:
        """Go on by a token that was allowed."""
        self._left -= 1
        self._at = self._states[self._at].leads.get(token_id, self._at)


def schema_masks(tokenizer: Any) -> Callable[[str, int], TokenMask]:
    """Return a maker of masks: (JSON Schema as text, max_tokens) to the mask of one reply.

    Automata are made once a schema. Raises `ConfigError` without outlines-core, and for
    a tokenizer that cannot be followed. The maker raises it for a schema that has no
    automaton, or that the tokenizer cannot spell.
    """
    try:
        import outlines_core  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            'constrained decoding needs outlines-core: pip install "memagent[constrained]"'
        ) from error
    spelling = _spelling(tokenizer)
    normalizer = tokenizer.backend_tokenizer.normalizer
    lower = normalizer is not None and normalizer.normalize_str("A") == "a"

    @lru_cache(maxsize=64)
    def automaton(schema: str) -> tuple[dict[int, _State], int]:
        return _automaton(_lowered(schema) if lower else schema, spelling)

    def mask(schema: str, max_tokens: int) -> TokenMask:
        states, start = automaton(schema)
        return SchemaMask(states, start, eos_id=tokenizer.eos_token_id, max_tokens=max_tokens)

    return mask


# -- automaton -------------------------------------------------------------------------


def _automaton(schema: str, spelling: _Spelling) -> tuple[dict[int, _State], int]:
    """Return the states by number, and the number of the first one.

    A state is a pair: a state of the expression, and whether a space is due.
    """
    from outlines_core import Index, Vocabulary
    from outlines_core.json_schema import build_regex_from_schema  # pyright: ignore[reportMissingImports]

    count = len(spelling.leaning)
    ids: dict[bytes, list[int]] = {}
    for shift, texts in ((0, spelling.leaning), (count, spelling.spaced)):
        for token, text in enumerate(texts):
            if text:
                ids.setdefault(text, []).append(shift + token)
    for byte in range(256):  # so that the library finds a way everywhere; these are not offered
        ids.setdefault(bytes([byte]), []).append(2 * count + byte)
    try:
        # The library takes tokens as bytes too, which its annotations leave out.
        vocabulary = Vocabulary(2 * count + 256, ids)  # pyright: ignore[reportArgumentType]
        index = Index(build_regex_from_schema(schema, _SPACE), vocabulary)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"replies cannot be held to the JSON Schema {schema[:200]}: {error}"
        ) from error
    final = {2 * state + asked for state in index.get_final_states() for asked in (_OPEN, _SPACED)}
    edges: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for state, moves in index.get_transitions().items():
        ways = np.fromiter(moves.keys(), dtype=np.int64, count=len(moves))
        leads = np.fromiter(moves.values(), dtype=np.int64, count=len(moves))
        for asked in (_OPEN, _SPACED):
            mine = (ways < 2 * count) & (ways // count == asked)
            tokens = ways[mine] % count
            edges[2 * state + asked] = tokens, 2 * leads[mine] + spelling.asks[tokens]
    needed = _distances(edges, final)
    start = 2 * index.get_initial_state() + _OPEN
    if start not in needed:
        raise ConfigError(f"the tokenizer cannot spell a reply to the JSON Schema {schema[:200]}")
    states = {number: _state(edges, needed, number, number in final) for number in needed}
    return states, start


def _distances(
    edges: Mapping[int, tuple[np.ndarray, np.ndarray]], final: set[int]
) -> dict[int, int]:
    """Return the tokens from each state to the nearest final one.

    States that lead to no final one are left out.
    """
    before: dict[int, set[int]] = {}
    for state, (_, leads) in edges.items():
        for lead in np.unique(leads).tolist():
            before.setdefault(lead, set()).add(state)
    distances = dict.fromkeys(final, 0)
    waiting = deque(final)
    while waiting:
        state = waiting.popleft()
        for earlier in before.get(state, ()):
            if earlier not in distances:
                distances[earlier] = distances[state] + 1
                waiting.append(earlier)
    return distances


def _state(
    edges: Mapping[int, tuple[np.ndarray, np.ndarray]],
    needed: Mapping[int, int],
    number: int,
    final: bool,
) -> _State:
    nothing = np.zeros(0, dtype=np.int64)
    tokens, leads = edges.get(number, (nothing, nothing))
    known = np.fromiter((lead in needed for lead in leads.tolist()), dtype=bool, count=len(leads))
    tokens, leads = tokens[known], leads[known]
    needs = np.fromiter(
        (needed[lead] + 1 for lead in leads.tolist()), dtype=np.int64, count=len(leads)
    )
    return _State(
        tokens=tokens,
        needs=needs,
        leads=dict(zip(tokens.tolist(), leads.tolist(), strict=True)),
        final=final,
    )


# -- tokenizers ------------------------------------------------------------------------


def _spelling(tokenizer: Any) -> _Spelling:
    """Return the bytes that the tokens add to a text.

    Raises `ConfigError` for a tokenizer that is neither byte-level nor word-level.
    """
    inner = getattr(tokenizer, "backend_tokenizer", None)
    kind, decoder = (
        (type(inner.model).__name__, str(type(inner.decoder).__name__))
        if inner is not None
        else ("", "")
    )
    if decoder == "ByteLevel" or (inner is not None and "ByteLevel" in repr(inner.decoder)):
        return _byte_level(tokenizer)
    if kind == "WordLevel":
        return _word_level(tokenizer)
    raise ConfigError(
        "replies can be held to a schema with byte-level and word-level tokenizers; "
        f"this one is {kind or type(tokenizer).__name__} with the decoder "
        f"{decoder or 'of its own'}: set constrained = false"
    )


def _byte_level(tokenizer: Any) -> _Spelling:
    table = _byte_table()
    added = tokenizer.added_tokens_decoder
    special = set(tokenizer.all_special_ids)
    texts = [b""] * len(tokenizer)
    for text, token in tokenizer.get_vocab().items():
        if token in special or (token in added and added[token].special):
            continue
        texts[token] = text.encode() if token in added else bytes(table[sign] for sign in text)
    return _Spelling(
        leaning=texts, spaced=[b""] * len(texts), asks=np.zeros(len(texts), dtype=np.int64)
    )


def _byte_table() -> dict[str, int]:
    """Return the byte behind each letter that byte-level tokenizers write.

    Visible bytes are themselves, the others follow from 256 on.
    """
    visible = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {
        chr(256 + place): byte for place, byte in enumerate(hidden)
    }


def _word_level(tokenizer: Any) -> _Spelling:
    """Decode each token alone, after a word and before one."""
    special = set(tokenizer.all_special_ids)
    plain = [token for token in range(len(tokenizer)) if token not in special]

    def said(*tokens: int) -> str:
        return tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    word = next((token for token in plain if said(token).isalnum()), None)
    if word is None:
        raise ConfigError("a word-level tokenizer without a single word cannot write a reply")
    leaning, spaced = [b""] * len(tokenizer), [b""] * len(tokenizer)
    asks = np.zeros(len(tokenizer), dtype=np.int64)
    for token in plain:
        alone = said(token)
        leaning[token] = alone.encode()
        spaced[token] = said(word, token).removeprefix(said(word)).encode()
        asks[token] = _OPEN if said(token, word) == alone + said(word) else _SPACED
    return _Spelling(leaning=leaning, spaced=spaced, asks=asks)


def _lowered(schema: str) -> str:
    """Return the schema with property names and constant strings in lower case.

    Keys keep their order.
    """

    def lower(value: Any, *, key: str = "") -> Any:
        if isinstance(value, dict):
            names = str.lower if key == "properties" else str
            return {
                names(name): lower(item, key="" if key == "properties" else name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [lower(item, key=key) for item in value]
        return (
            value.lower()
            if isinstance(value, str) and key in ("enum", "const", "required")
            else value
        )

    return json.dumps(lower(json.loads(schema)))
