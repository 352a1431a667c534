"""Heads that were fitted to somebody's own decisions, beside the shipped encoder.

`memagent-train tune` and `memagent-train distil` write them: the scorer of pairs and a
head for what is not worth keeping. The encoder, which finds the statements, is always
the shipped one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from memagent.core.errors import ConfigError
from memagent.designs.base import SlotContext
from memagent.designs.parts.learned.network import Network, open_network, read_arrays
from memagent.designs.parts.learned.pairs import ALONE, PAIR_FEATURES, WORTH, Choice, Side, choose

SHIPPED = "shipped"
"""Name in a file of heads: the digest of the encoder that they were fitted beside."""


def open_heads(path: Path) -> Network:
    """Return the shipped network with the heads of a file, read again when it changed.

    Raises `ConfigError` for a file that is none or was fitted beside another encoder.
    """
    try:
        status = path.stat()
    except OSError as exc:
        raise ConfigError(f"the heads in {path} cannot be read ({exc}); fit them again") from exc
    return _read_heads(path, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=4)
def _read_heads(path: Path, _version: tuple[int, int, int]) -> Network:
    shipped = open_network()
    heads, digest = read_arrays(path)
    fitted = str(heads.pop(SHIPPED, ""))
    key = shipped.weights["key.weight"].shape[0]
    shapes = {"pair.0.weight": PAIR_FEATURES, WORTH: ALONE + key}
    fits = all(name in heads and heads[name].shape[1] == wide for name, wide in shapes.items())
    if fitted != shipped.digest or not fits:
        raise ConfigError(
            f"the heads in {path} were fitted beside other weights than the shipped "
            f"{shipped.digest[:12]}; fit them again with memagent-train tune or distil"
        )
    return Network({**shipped.weights, **heads}, digest)


@dataclass(frozen=True, kw_only=True)
class FittedChoice:
    """Decides with the heads of a file. Asks no model."""

    path: Path

    async def __call__(self, new: Side, memories: Sequence[Side], _ctx: SlotContext, /) -> Choice:
        """Return the choice of the heads. Raises `ConfigError` for a file that is none."""
        return choose(open_heads(self.path), new, memories)
