"""Make the pictures of the documentation, light and dark, from the program as it is.

    python scripts/pictures.py           # all of docs/images; needs Chromium
    python scripts/pictures.py --check   # says which pictures no longer show today's pages

A terminal is a pseudo-terminal that `memagent chat` runs in; the pages are those of a
service on loopback, whose clock stands still, and of the training run in
`docs/research/results/smoke_run.zip`. `docs/images/pictures.json` keeps the words of each
picture and a digest of the style sheets: a picture is old when either differs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import os
import pty
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import terminal_theme
from rich.console import CONSOLE_SVG_FORMAT, Console  # type: ignore[attr-defined]
from rich.text import Text

from memagent import Scope
from memagent.build import open_store
from memagent.config import AgentSettings

ROOT = Path(__file__).resolve().parents[1]
KITS = [ROOT / "tests/kits", ROOT / "tests/kits/web"]
sys.path[:0] = [str(kit) for kit in KITS]

IMAGES = ROOT / "docs/images"
RECORD = IMAGES / "pictures.json"
RUN = ROOT / "docs/research/results/smoke_run.zip"
STYLES = ("memagent/pages/assets", "memagent/service/ui/assets")
THEMES = {"light": terminal_theme.DEFAULT_TERMINAL_THEME, "dark": terminal_theme.MONOKAI}
LARGEST_BYTES = 150_000
COLUMNS = 84
SAID = (
    "My dog Rex is allergic to chicken.",
    "I live in Lisbon and work as a nurse.",
    "I don't live in Lisbon any more, I moved to Porto.",
    "Where do I live now?",
    "What is Rex allergic to?",
    "Which car do I drive?",
)
"""What is typed into the chat; the memory answers without a model."""
LIFE = (
    ("2026-01-12", "I live in Lisbon. My dog Rex is allergic to chicken."),
    ("2026-01-20", "I work as a nurse at the Santa Maria hospital. My brother Tiago is a cook."),
    ("2026-02-03", "My favourite food is grilled fish. Tiago lives in Braga."),
    ("2026-02-27", "I started to learn Italian because I fly to Rome in May."),
    ("2026-03-15", "Rex had to go to the vet because he ate a ribbon."),
    ("2026-04-08", "I cancelled my trip to Rome because of the vet's bill."),
    ("2026-05-19", "Tiago opened a small restaurant in Braga. I helped him to paint it."),
    ("2026-06-02", "I don't live in Lisbon any more, I moved to Porto last Saturday."),
    ("2026-06-30", "I work at the Santo António hospital now. I still learn Italian."),
)
"""What the user of the dashboard told, by day."""


def terminal(lines: tuple[str, ...], folder: Path) -> str:
    """Return what a terminal shows of a chat in which these lines are typed."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MEMAGENT")},
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "XDG_DATA_HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    process, end = pty.fork()
    if process == 0:
        os.chdir(folder)
        words = [sys.executable, "-m", "memagent.cli.app", "chat", "--user", "ana"]
        os.execve(words[0], words, environment)
    shown = ""
    for line in (*lines, None):
        while not shown.endswith("you> "):
            shown += os.read(end, 4096).decode()
        if line is not None:
            shown += "\0"
            os.write(end, f"{line}\n".encode())
    os.close(end)
    os.waitpid(process, 0)
    return shown.replace("\0", "").replace("\r\n", "\n").removesuffix("you> ")


def draw_terminal(shown: str, theme: str) -> str:
    """Return what a terminal shows as SVG that loads nothing from elsewhere."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    plain = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="memagent chat", theme=THEMES[theme], code_format=plain)


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """Serve a memory of half a year; yield the service's address."""
    from service_kit import serving

    now = [datetime(2026, 1, 1, 9, tzinfo=UTC)]
    path, design = folder / "memory.db", "compass_rules"
    settings = AgentSettings(design=design)
    store = open_store(settings, path=path, embedder="hashing", clock=lambda: now[0])
    for day, text in LIFE:
        now[0] = datetime.fromisoformat(f"{day}T09:00:00+00:00")
        turns = [{"name": "Ana", "content": f"{part.rstrip('.')}."} for part in text.split(". ")]
        agent = store.agent(Scope(user_id="ana"))
        asyncio.run(agent.remember(turns, at=now[0], session_id=day))
    store.close()
    with serving(path, design=design, clock=lambda: now[0]) as served:
        yield served.url


def moved(url: str) -> str:
    """Return the id of the memory that the move to Porto changed."""
    import httpx

    with httpx.Client(base_url=url, params={"user_id": "ana"}, trust_env=False) as http:
        items = http.get("/v1/memories").raise_for_status().json()["items"]
    [changed] = [item["id"] for item in items if "moved to Porto" in item["text"]]
    return str(changed)


def pages(url: str, folder: Path) -> dict[str, str]:
    """Return the address of each page that is pictured."""
    from train.report.report import write_report

    zipfile.ZipFile(RUN).extractall(folder)
    report = write_report(folder / "smoke", folder / "report.html")
    return {
        "overview": f"{url}/ui?user_id=ana",
        "history": f"{url}/ui/memories/{moved(url)}?user_id=ana",
        "graph": f"{url}/ui/graph?user_id=ana",
        "training": report.as_uri(),
    }


def photographed(browser: Any, address: str, theme: str) -> tuple[bytes, str]:
    """Return a page as PNG, and its words."""
    context = browser.new_context(
        viewport={"width": 1200, "height": 820}, color_scheme=theme, reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1500)
        return page.screenshot(), page.locator("body").inner_text()
    finally:
        context.close()


def make(*, themes: tuple[str, ...] = ("light", "dark")) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the pictures by file name, and their record."""
    from browser_kit import chromium
    from doc_pages import comparable
    from PIL import Image

    pictures: dict[str, bytes] = {}
    record: dict[str, Any] = {"styles": style_digest()}
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        shown = terminal(SAID, folder)
        record["chat"] = comparable(Text.from_ansi(shown).plain)
        for theme in themes:
            pictures[f"chat-{theme}.svg"] = draw_terminal(shown, theme).encode()
        # Chromium's driver runs a loop in this thread, so the memory is filled before.
        with dashboard(folder) as url, chromium() as browser:
            for name, address in pages(url, folder).items():
                for theme in themes:
                    png, words = photographed(browser, address, theme)
                    record[name] = comparable(words)
                    file = io.BytesIO()
                    Image.open(io.BytesIO(png)).save(file, "WEBP", quality=82, method=6)
                    pictures[f"{name}-{theme}.webp"] = file.getvalue()
    return pictures, record


def style_digest() -> str:
    """Return the digest of the style sheets of all pictured pages."""
    sheets = sorted(sheet for folder in STYLES for sheet in (ROOT / folder).glob("*.css"))
    return hashlib.sha256(b"".join(sheet.read_bytes() for sheet in sheets)).hexdigest()


def outdated() -> list[str]:
    """Return what differs between the record and today's pages."""
    _, record = make(themes=("light",))
    kept = json.loads(RECORD.read_text(encoding="utf-8"))
    return sorted(name for name in {*record, *kept} if record.get(name) != kept.get(name))


def main() -> int:
    """Make the pictures, or say which are old."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail for an old one")
    if parser.parse_args().check:
        print(*(old := outdated()), sep="\n")
        return int(bool(old))
    pictures, record = make()
    for name, content in pictures.items():
        if len(content) > LARGEST_BYTES:
            raise SystemExit(f"{name} has {len(content):,} bytes")
        (IMAGES / name).write_bytes(content)
        print(f"{len(content):>8,} {name}")
    RECORD.write_text(json.dumps(record, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
