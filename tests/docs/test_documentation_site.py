"""The documentation site: it builds without a warning, loads nothing from elsewhere,
and its generated page is current.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from browser_kit import chromium
from markdown.extensions.toc import slugify
from patience import patience_s
from places import ROOT

from memagent import Agent
from memagent.agent import SyncMemory
from memagent.config import ModelSettings, ServiceSettings


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once; a link or an anchor that leads nowhere fails the build."""
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?:[^\s\">]+)",
            page.read_text(encoding="utf-8"),
        )
        assert not loaded, f"{page.name} loads {loaded}"


def test_a_page_opened_from_disk_finds_words_and_copies_its_source(site: Path) -> None:
    with chromium() as browser:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        page, asked = context.new_page(), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "integrations" / "index.html").as_uri())
        page.locator(".md-search__input").press_sequentially("undo")
        found = page.locator(".md-search-result__item").first
        found.wait_for(timeout=1000 * patience_s(30))
        first = found.inner_text()
        page.keyboard.press("Escape")
        page.locator(".copy-page").click()
        page.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        page.goto((site / "integrations" / "langchain.html").as_uri())
        page.get_by_text("MemoryMiddleware gives an agent of LangChain").wait_for()
        context.close()
    assert not first.startswith(("REST reference", "The command line", "Settings"))
    assert copied.startswith("# Integrations\n") and "\n## LangChain\n" in copied
    assert [url for url in asked if not url.startswith("file:")] == []


def test_the_landing_keeps_its_title_whole_on_a_phone(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 740})
        page.goto((site / "index.html").as_uri())
        title, button = (page.locator(name).bounding_box() for name in ("h1", ".copy-page"))
        assert title["y"] >= button["y"] + button["height"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_old_addresses_lead_to_headings_that_are_there(tmp_path: Path) -> None:
    moved = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["extra"]["moved"]
    config = {"site_dir": str(tmp_path), "extra": {"moved": moved}}
    _script("site_hook").on_post_build(config=config)
    for old, new in moved.items():
        assert not (ROOT / "docs" / old).exists()
        page, _, part = new.partition("#")
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert part in {slugify(title, "-") for title in headings}, new
        left = (tmp_path / old).with_suffix(".html")
        [target] = re.findall(r'href="([^"#]+)', left.read_text(encoding="utf-8"))
        there = (left.parent / target).resolve().relative_to(tmp_path.resolve())
        assert there.with_suffix(".md").as_posix() == page


def test_the_page_for_coding_agents_names_pages_and_calls_that_are_there() -> None:
    text = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
    pages = re.findall(r"\]\(([^)]+)\.html\)", text)
    assert len(pages) >= 12
    assert [page for page in pages if not (ROOT / "docs" / f"{page}.md").is_file()] == []
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    front = re.findall(r"\]\(([^)]+)\.html\)", text.partition("## Start")[2].partition("\n## ")[0])
    assert [f"{page}.md" for page in front] == [
        page for page in nav[0]["Start"] if page != "index.md"
    ]
    for name in re.findall(r"agent\.(\w+)\(", text):
        assert hasattr(Agent, name)
    for name in re.findall(r"`(?:agent\.memory)?\.(\w+)\(", text):
        assert hasattr(SyncMemory, name)


def test_every_document_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert re.search(rf"- {re.escape(name)}$", config, re.MULTILINE), (
            f"{name} is not in mkdocs.yml"
        )


def test_rest_reference_is_made_from_the_document() -> None:
    script = _script("rest_page")
    document = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    made, page = script.rest_page(document), (ROOT / "docs/rest.md").read_text(encoding="utf-8")
    assert page == made, "docs/rest.md is old: run  python scripts/rest_page.py"
    operations = sum(len(one) for one in document["paths"].values())
    assert len(re.findall(r"^## [A-Z]+ `/", page, re.MULTILINE)) == operations


def test_the_findings_and_their_charts_are_made_from_the_results() -> None:
    script, page = _script("good_page"), ROOT / "docs/how-good.md"
    advice = "run  python scripts/good_page.py"
    assert script.findings().strip() in page.read_text(encoding="utf-8"), advice
    assert script.lessons().strip() in page.read_text(encoding="utf-8"), advice
    for name, chart in script.charts().items():
        assert (ROOT / "docs/images" / name).read_text(encoding="utf-8") == chart, advice


def test_a_ceiling_holds_pages_and_words() -> None:
    counts, ceilings = _script("pages").count_words(), _ceilings()
    assert len(counts) <= ceilings["pages"] and sum(counts.values()) <= ceilings["words"]
    assert {name for name, words in counts.items() if words == 0} == set(_script("pages").GENERATED)
    assert (
        _script("pages").words_of("one | 2 |\n<!-- x -->\nnot these\n<!-- /x -->\n--- three\n") == 3
    )


def test_settings_reference_is_made_from_the_records() -> None:
    script, page = _script("settings_page"), (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert page == script.settings_page(), "it is old: run  python scripts/settings_page.py"
    keys = {name for record in (ModelSettings, ServiceSettings) for name in record.model_fields}
    assert {name for name in keys if f"| `{name}` |" not in page} == set()


def _ceilings() -> dict[str, int]:
    return tomllib.loads((ROOT / "budgets.toml").read_text(encoding="utf-8"))["docs"]


def _script(name: str) -> ModuleType:
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
