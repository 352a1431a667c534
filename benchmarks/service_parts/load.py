"""A load generator light enough to leave the processor to the server.

It is one thread with one epoll and plain sockets kept alive, and makes requests as it
goes.

No two searches of a run are the same, so no cache of answers or of query vectors does
the server's work.
"""

from __future__ import annotations

import json
import random
import select
import socket
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd

NAMES = (
    "Ana Bo Carla David Elena Farid Grace Hugo Ines Jonas Kira Liam Mona Nadia Omar Paula Quentin "
    "Rosa Samir Tara "
    "Uma Victor Wanda Xavier Yara Zeno Alma Bruno Clara Dario Edith Fabio Gloria Hanna Ivan "
    "Judith Karim Lena"
).split()
VERBS = (
    "bought sold found lost repaired painted borrowed cooked planted cleaned visited planned "
    "described recorded moved "
    "collected carried measured photographed ordered cancelled forgot finished started wrapped "
    "returned traded shared"
).split()
KINDS = (
    "red old small broken wooden blue heavy bright empty narrow silver green rusty quiet warm "
    "yellow plain round soft "
    "spare striped square cheap curved golden"
).split()
THINGS = (
    "bicycle piano kettle lantern violin suitcase ladder mirror camera carpet teapot guitar "
    "wallet umbrella notebook "
    "compass blanket drawer helmet clock saddle basket curtain hammer kite lamp mug oven parcel "
    "quilt radio scarf tent "
    "vase wagon anchor bench candle doorbell engine fence garden hat jacket key letter map "
    "necklace painting ring shelf "
    "ticket watch armchair bottle cushion desk envelope flute glove hook jar ladle magnet net "
    "puzzle rope sofa tray"
).split()
PLACES = (
    "harbour market library station bakery museum bridge school theatre office park hospital "
    "airport village farm "
    "castle kitchen cellar workshop studio church hotel island lake forest cafe gallery tower "
    "courtyard terrace"
).split()
REASONS = (
    "because the neighbours asked for it; before the guests arrived; although it rained all day; "
    "and paid in cash; "
    "to surprise the children; for a friend from abroad; after a long discussion; without telling "
    "anyone; "
    "while the shop was closing; as a birthday present"
).split("; ")
TIMES = ("last summer", "in May 2024", "yesterday", "last week")
"""One question in twenty names a time."""
_PATIENCE_S = 600.0


def sentence(chance: random.Random) -> str:
    """Return a memory of about 90 characters."""
    pick = chance.choice
    return (
        f"{pick(NAMES)} {pick(VERBS)} the {pick(KINDS)} {pick(THINGS)} at the {pick(PLACES)} "
        f"{pick(REASONS)}, number "
        f"{chance.randrange(10_000)}"
    )


class Questions:
    """All questions that the words allow, in an order that looks random and repeats none."""

    def __init__(self, seed: int) -> None:
        self._sizes = (len(NAMES), len(VERBS), len(THINGS), len(PLACES))
        self._all = len(NAMES) * len(VERBS) * len(THINGS) * len(PLACES)
        self._step = 1_000_003
        assert gcd(self._step, self._all) == 1
        self._at = seed * 7_919 % self._all

    def next(self) -> str:
        """Return the next question."""
        self._at = left = (self._at + self._step) % self._all
        chosen: list[int] = []
        for size in self._sizes:
            left, at = divmod(left, size)
            chosen.append(at)
        name, verb, thing, place = chosen
        when = f" {TIMES[self._at % len(TIMES)]}" if self._at % 20 == 0 else ""
        topic = f"the {THINGS[thing]} {VERBS[verb]} at the {PLACES[place]}"
        return f"what did {NAMES[name]} say about {topic}{when}"


def request(path: str, body: dict[str, object]) -> bytes:
    """Encode a POST as it goes over the wire."""
    data = json.dumps(body)
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        f"application/json\r\nContent-Length: {len(data)}\r\n\r\n{data}"
    ).encode()


Request = tuple[bool, bytes]
"""(whether it writes, its bytes)."""


def mixed(users: int, *, writes: float, seed: int = 1) -> Iterator[Request]:
    """Yield searches and adds without end, each for a user chosen at random."""
    chance, questions = random.Random(seed), Questions(seed)
    while True:
        user = f"?user_id=u{chance.randrange(users)}"
        if chance.random() < writes:
            yield True, request(f"/v1/memories{user}", {"text": sentence(chance)})
        else:
            yield False, request(f"/v1/search{user}", {"text": questions.next(), "k": 10})


def once_each(users: int) -> Iterator[Request]:
    """One search for every user."""
    questions = Questions(0)
    for user in range(users):
        yield False, request(f"/v1/search?user_id=u{user}", {"text": questions.next(), "k": 10})


@dataclass
class Outcome:
    """What came of a load; latencies in seconds."""

    searches: array[float] = field(default_factory=lambda: array("d"))
    adds: array[float] = field(default_factory=lambda: array("d"))
    errors: int = 0
    seconds: float = 0.0
    own_cpu_s: float = 0.0
    """Processor time of the load itself."""
    search_bytes: int = 0
    add_bytes: int = 0
    """Bytes of all bodies."""
    tenths: list[float] = field(default_factory=list[float])
    """What `watch` gave at the end of each tenth of the time."""

    @property
    def requests(self) -> int:
        """Answered requests."""
        return len(self.searches) + len(self.adds)


def drive(
    port: int,
    requests: Iterator[Request],
    *,
    connections: int,
    seconds: float = 1e9,
    watch: Callable[[], float] = lambda: 0.0,
) -> Outcome:
    """Send requests, one at a time on each connection, until time or requests run out."""
    found = Outcome()
    poll = select.epoll()
    open_ones: dict[int, _Line] = {}
    cpu, began = time.process_time(), time.perf_counter()
    until, tenth = began + seconds, 1
    try:
        for _ in range(connections):
            line = _Line(port)
            if line.send(requests):
                open_ones[line.socket.fileno()] = line
                poll.register(line.socket, select.EPOLLIN)
        while open_ones:
            events = poll.poll(_PATIENCE_S)
            if not events:
                raise TimeoutError(
                    f"no answer for {_PATIENCE_S:g} s; {len(open_ones)} requests wait"
                )
            now = time.perf_counter()
            for number, _ in events:
                line = open_ones[number]
                if not line.receive(found):
                    continue
                if now > until or not line.send(requests):
                    poll.unregister(line.socket)
                    open_ones.pop(number).socket.close()
            while tenth <= 10 and now >= began + tenth * seconds / 10:
                found.tenths.append(watch())
                tenth += 1
    finally:
        poll.close()
        for line in open_ones.values():
            line.socket.close()
    found.seconds = time.perf_counter() - began
    found.own_cpu_s = time.process_time() - cpu
    return found


class _Line:
    """One connection with at most one request on its way."""

    __slots__ = ("began", "data", "socket", "wanted", "writes")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data, self.wanted, self.writes, self.began = b"", 0, False, 0.0

    def send(self, requests: Iterator[Request]) -> bool:
        """Send the next request; False when there is none."""
        following = next(requests, None)
        if following is None:
            return False
        self.writes, data = following
        self.data, self.wanted = b"", 0
        self.began = time.perf_counter()
        self.socket.sendall(data)
        return True

    def receive(self, found: Outcome) -> bool:
        """Take in what has come; True when the answer is complete and counted."""
        some = self.socket.recv(65_536)
        if not some:
            raise ConnectionError("the server closed the connection")
        self.data = self.data + some if self.data else some
        if not self.wanted:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = self.data[:end].lower()
            at = head.index(b"content-length:") + 15
            stop = head.find(b"\r\n", at)
            self.wanted = end + 4 + int(head[at : stop if stop >= 0 else end])
        if len(self.data) < self.wanted:
            return False
        took = time.perf_counter() - self.began
        body = self.wanted - self.data.index(b"\r\n\r\n") - 4
        if self.writes:
            found.adds.append(took)
            found.add_bytes += body
        else:
            found.searches.append(took)
            found.search_bytes += body
        found.errors += self.data[9:10] != b"2"
        return True
