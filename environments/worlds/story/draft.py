"""The state of a story while it is drawn: threads by topic, and the values still free."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cached_property

from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Person
from environments.worlds.story.beats import Beat, Thread, Topic
from environments.worlds.story.cast import Cast
from environments.worlds.story.writer import BeatWriter
from environments.worlds.truth import Act


class Draft:
    """A story in the making: a `Thread` for every value that can be revised.

    A thread knows its tellings, so every revision names the telling that it supersedes.
    """

    def __init__(
        self, rng: random.Random, lexicon: Lexicon, config: WorldConfig, cast: Cast
    ) -> None:
        self.rng, self.lexicon, self.config, self.cast = rng, lexicon, config, cast
        self.writer = BeatWriter(rng, lexicon, cast)
        self.topics: dict[tuple[str, str], list[Thread]] = {}
        """Threads by the names of the person and the relation."""

    @cached_property
    def _speakers(self) -> frozenset[str]:
        return frozenset(person.name for person in self.cast.speakers)

    def speaks(self, person: Person) -> bool:
        """Whether the person takes part in the conversation."""
        return person.name in self._speakers

    def threads_of(self, topic: Topic) -> list[Thread]:
        """Return the threads of a topic; empty when nothing was told."""
        subject, relation = topic
        return self.topics.get((subject.name, relation.name), [])

    def open_threads(self) -> Iterator[Thread]:
        """Return the threads that can be revised, in the order of their topics."""
        return (thread for threads in self.topics.values() for thread in threads if thread.open)

    def start(self, beat: Beat) -> Thread:
        """Start a thread with its first beat."""
        thread = Thread(
            beat=beat, value=beat.value, since=self.writer.today, day=beat.day, lead=beat
        )
        self.topics.setdefault((beat.subject.name, beat.relation.name), []).append(thread)
        return thread

    def revise(self, thread: Thread, beat: Beat) -> None:
        """Continue a thread with a beat that revises it."""
        thread.beat, thread.value, thread.since = beat, beat.value, self.writer.today
        if beat.act is Act.CHANGE:
            thread.lead = beat

    def draw_value(self, topic: Topic, *, without: str = "") -> str:
        """Draw a value that the person never had, mostly one that nobody had.

        Empty when there is none.
        """
        relation = topic[1]
        had = {beat.value for thread in self.threads_of(topic) for beat in thread.beat.history()}
        had.add(without)
        free = [value for value in self.lexicon.pools[relation.values] if value not in had]
        used = self.writer.used.get(relation.name, set())
        fresh = [value for value in free if value not in used]
        if fresh and self.rng.random() < 0.85:
            return self.rng.choice(fresh)
        return self.rng.choice(free) if free else ""
