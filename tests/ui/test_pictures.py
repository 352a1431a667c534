"""The pictures of the documentation show today's pages, light and dark, and are small."""

from __future__ import annotations

import importlib.util
import re

from browser_kit import chromium
from places import ROOT

IMAGES = ROOT / "docs" / "images"
NAMES = ("chat", "graph", "history", "overview", "training")


def test_the_pictures_show_what_the_program_shows_now() -> None:
    with chromium():
        pass  # skipped where there is none
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts/pictures.py")
    assert spec is not None and spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert pictures.outdated() == [], "run  python scripts/pictures.py  and look at docs/images"


def test_each_picture_is_there_in_light_and_dark_and_in_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for name in NAMES:
        for theme in ("light", "dark"):
            [picture] = IMAGES.glob(f"{name}-{theme}.*")
            assert picture.stat().st_size <= 150_000
            assert re.search(rf"{name}-{theme}\.\w+#only-{theme}\)", text), picture.name
