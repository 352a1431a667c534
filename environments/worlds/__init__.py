"""Generated worlds: a hidden, typed state of people and events, the dialogues that tell
it, and questions with exact answers.
"""

from __future__ import annotations
