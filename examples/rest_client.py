"""The typed client against a running service: `memagent serve` in one terminal, this in another.

Without arguments it starts a service of its own on a temporary store, so that it runs
anywhere.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from memagent import AsOf, Client
from memagent.core.errors import VersionConflict


@contextmanager
def own_service() -> Iterator[str]:
    """Serve a temporary store and yield its address."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "memagent.cli.app",
            "serve",
            "--db",
            str(Path(folder) / "memory.db"),
            "--port",
            "0",
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split("serves ")[1].split()[0]
        finally:
            process.terminate()
            process.communicate()


def talk(url: str) -> None:
    with Client(url, user_id="ana") as client:
        memory = client.memory
        cat = memory.add(
            "Ana adopted a grey cat called Bolt", said_at=datetime(2023, 5, 8, tzinfo=UTC)
        )
        client.remember(
            [{"role": "user", "name": "Ana", "content": "Bolt had to go to the vet on Thursday."}]
        )
        print("found:", [hit.text for hit in client.search("What is the cat called?", k=2)])
        print("answer:", client.ask("Where did Bolt have to go?").text)

        before = memory.snapshot()
        memory.update(cat.id, "Ana adopted a black cat called Bolt", version=cat.version)
        try:
            memory.update(cat.id, "too late", version=cat.version)
        except VersionConflict as refused:
            print("refused:", refused)
        print("changed:", [new.text for _, new in memory.diff(before).changed])
        print("then:", memory.as_of(AsOf(recorded=before.seq)).get(cat.id).text)
        print("nothing:", client.ask("What did Ana study at university?").verdict.value)


def main() -> None:
    if len(sys.argv) > 1:
        talk(sys.argv[1])
    else:
        with own_service() as url:
            talk(url)


if __name__ == "__main__":
    main()
