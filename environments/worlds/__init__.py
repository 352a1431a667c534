"""Generated worlds: hidden states, the dialogues that tell them, exact questions."""

from __future__ import annotations
