"""Keys and values of a decoder with room to grow.

Transformers' own layer makes a new tensor of all keys at every token, which for a small
model is half of the work of sampling. Here they lie in a buffer with free places at its
end, and a token costs what it adds. The tensors that the model sees are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

CACHE = "cache" if hasattr(CausalLMOutputWithPast, "cache") else "past_key_values"
"""What models call the cache that they take and give; transformers 5.24 renamed it."""
_FREE = 64
"""Free places that a new buffer has."""


class RoomyLayer(DynamicLayer):
    """`keys` and `values` (B, heads, tokens, size) are the filled part of the buffers."""

    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002 - interface
        **options: Any,  # noqa: ARG002 - interface
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (B, heads, new tokens, size) each and return all keys and values."""
        assert self.keys is not None and self.values is not None
        held, new = self.keys.shape[-2], key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < held + new:
            self._buffers = _roomy(self.keys, new), _roomy(self.values, new)
        keys, values = self._buffers
        keys[..., held : held + new, :] = key_states
        values[..., held : held + new, :] = value_states
        self.keys, self.values = keys[..., : held + new, :], values[..., : held + new, :]
        return self.keys, self.values

    def join(self, kept: torch.Tensor, first: int, fresh: RoomyLayer) -> None:
        """Keep some rows, from column `first` on, and add those of a fresh layer."""
        assert self.keys is not None and self.values is not None
        self.keys = _beside(self.keys[..., first:, :][kept], fresh.keys)
        self.values = _beside(self.values[..., first:, :][kept], fresh.values)
        self._buffers = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows."""
        super().batch_select_indices(indices)
        self._buffers = None  # they hold the other rows too; the next token makes new ones


def with_room(cache: Any) -> Any:
    """Exchange the plain layers of a first forward pass's cache for roomy ones.

    Other layers (sliding windows, states) stay.
    """
    layers = getattr(cache, "layers", [])
    for place, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            assert layer.keys is not None and layer.values is not None
            roomy = RoomyLayer()
            roomy.lazy_initialization(layer.keys, layer.values)
            roomy.keys, roomy.values = layer.keys, layer.values
            layers[place] = roomy
    return cache


def may_join(cache: Any) -> bool:
    """Tell whether rows of other lengths can be added to a cache."""
    layers = getattr(cache, "layers", [])
    return bool(layers) and all(type(layer) is RoomyLayer for layer in layers)


def join_caches(cache: Any, kept: torch.Tensor, first: int, fresh: Any) -> None:
    """Keep some rows of a cache, from column `first` on, and add those of a fresh cache.

    Both end at the same column; the shorter ones are padded on the left.
    """
    for layer, other in zip(cache.layers, fresh.layers, strict=True):
        layer.join(kept, first, other)


def _roomy(held: torch.Tensor, new: int) -> torch.Tensor:
    """Return a buffer that begins with the held tokens and has room for `new` and more."""
    *batch, tokens, size = held.shape
    buffer = held.new_empty((*batch, tokens + new + _FREE, size))
    buffer[..., :tokens, :] = held
    return buffer


def _beside(held: torch.Tensor, fresh: Any) -> torch.Tensor:
    """Return both rows in one tensor, padded on the left with zeros.

    Other padding might be no number, and that times no attention is none either.
    """
    width = max(held.shape[-2], fresh.shape[-2])
    rows, heads, size = len(held) + len(fresh), *held.shape[1::2]
    both = held.new_zeros((rows, heads, width, size))
    both[: len(held), :, width - held.shape[-2] :] = held
    both[len(held) :, :, width - fresh.shape[-2] :] = fresh
    return both
