"""The page of the API: what holds for every route stands once, and each call can be tried."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from browser_kit import WIDTHS, chromium, overflow
from places import ROOT
from service_kit import Served, serving
from ui_kit import SCHEMES, axe_faults, tab_on

from memagent.service.app import create_app
from memagent.service.routes.memories import API_PAGE
from memagent.testing.models import FunctionModel

sys.path.append(str(ROOT / "scripts"))
from api_page import PROBLEM, api_page, example_of


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(":memory:", design="verbatim") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.filterwarnings("ignore:The .* attribute with value:UserWarning")  # FastAPI's own
def test_the_packaged_page_is_the_one_of_this_api(served: Served) -> None:
    page = API_PAGE.read_text(encoding="utf-8")
    assert page == api_page(create_app().openapi()), "write it anew: python scripts/api_page.py"
    with served.http() as http:
        text = http.get("/docs").text
        assert f"{served.url}/v1/memories" in html.unescape(text)
        evil = http.get("/docs", headers={"Host": '127.0.0.1"><script>:1'}).text
    assert "<script>" not in evil


def test_each_error_and_each_common_parameter_is_said_once(served: Served) -> None:
    with served.http() as http:
        page = html.unescape(http.get("/docs").text)
    document = create_app().openapi()
    operations = [entry for path in document["paths"].values() for entry in path.values()]
    words = {
        response["description"]
        for entry in operations
        for response in entry["responses"].values()
        if PROBLEM in response.get("content", {})
    }
    assert len(words) > 10
    table = page.partition('<h2 id="errors">')[2].partition('<h2 id="schemas">')[0]
    for each in words:
        assert page.count(f"<td>{each} ") == 1 == table.count(f"<td>{each} "), each
    assert page.count('<th scope="row"><code>query user_id</code>') == 1
    good = sum(len(entry["responses"]) for entry in operations) - sum(
        PROBLEM in response.get("content", {})
        for entry in operations
        for response in entry["responses"].values()
    )
    rows = re.findall(r'<th scope="row"><code>\d\d\d</code>', page.partition(table)[0])
    assert len(rows) == good


def test_every_example_of_a_body_is_taken() -> None:
    document = create_app().openapi()
    schemas = document["components"]["schemas"]
    tried: list[str] = []
    model = FunctionModel(lambda _: "Understood")
    with serving(":memory:", design="verbatim", model=model) as running, running.http() as http:
        http.params = {"user_id": "examples"}
        for path, methods in document["paths"].items():
            for method, entry in methods.items():
                content = entry.get("requestBody", {}).get("content", {})
                if "application/json" not in content:
                    continue
                body = example_of(content["application/json"]["schema"], schemas)
                made = http.post("/v1/memories", json={"text": f"for {path}"}).json()["id"]
                trial = http.post("/v1/trials", json={"task": f"try {path}"}).json()["trial"]["id"]
                place = path.replace("{memory_id}", made).replace("{trial_id}", trial)
                answer = http.request(method, place, json=body)
                assert answer.status_code < 300, (path, body, answer.text)
                tried.append(path)
    assert len(tried) >= 8


def test_the_lines_for_a_shell_work_as_they_stand(served: Served) -> None:
    with served.http() as http:
        page = http.get("/docs").text
    lines = [
        html.unescape(line) for line in re.findall(r'<pre class="curl"[^>]*>(.*?)</pre>', page)
    ]
    chosen = [
        line
        for line in lines
        if shlex.split(line)[-1].endswith("/healthz") or "/v1/memories' -H" in line
    ]
    line = next(line for line in lines if re.search(r"-X POST \S+/v1/memories -H", line))
    for each in (*chosen, line):
        done = subprocess.run(
            ["sh", "-c", each], capture_output=True, text=True, timeout=60, check=True
        )
        assert "status" in json.loads(done.stdout)


def test_a_call_can_be_tried_and_its_reply_is_shown_as_text(browser: Any, served: Served) -> None:
    with tab_on(browser, served.url) as tab:
        page = tab.page
        page.goto("/docs")
        page.locator("#caller input[data-common=user_id]").fill("it's me")
        form = opened(page, "POST", "/v1/memories")
        body = {"id": "x", "text": "<img src=x onerror=alert(1)>"}
        form.locator("textarea").fill(json.dumps(body))
        line = page.locator("details[open] .curl").inner_text()
        form.get_by_role("button", name="Send").click()
        form.locator(".reply .good").wait_for()
        assert "201" in form.locator(".reply p").inner_text()
        shown = json.loads(form.locator(".reply pre").inner_text())
        assert shown["text"] == body["text"] and form.locator("img").count() == 0
        words = shlex.split(line)
        assert words[:4] == ["curl", "-X", "POST", f"{served.url}/v1/memories?user_id=it%27s+me"]
        assert json.loads(words[-1]) == body
        page.locator("details[open] summary").first.click()
        form = opened(page, "GET", "/v1/memories/{memory_id}")
        form.get_by_role("button", name="Send").click()
        assert form.locator(".reply p").count() == 0, "a required field is asked for"
        form.locator("[data-name=memory_id]").fill("x/y ?")
        form.get_by_role("button", name="Send").click()
        form.locator(".reply .bad").wait_for()
        assert "404" in form.locator(".reply p").inner_text()
        page.goto("/docs#MemoryItem")
        assert page.locator("#MemoryItem").evaluate("it => it.open")


def test_a_key_is_sent_and_stands_in_no_line(browser: Any) -> None:
    with serving(":memory:", design="verbatim") as running:
        key = running.key("ana")
        with tab_on(browser, running.url) as tab:
            tab.page.goto("/docs")
            form = opened(tab.page, "GET", "/v1/memories")
            form.get_by_role("button", name="Send").click()
            form.locator(".reply .bad").wait_for()
            tab.page.locator("#key").fill(key)
            form.get_by_role("button", name="Send").click()
            form.locator(".reply .good").wait_for()
            line = tab.page.locator("details[open] .curl").inner_text()
            assert key not in line and "$MEMAGENT_API_KEY" in line
            assert tab.page.evaluate("localStorage.length + sessionStorage.length") == 0


def opened(page: Any, method: str, path: str) -> Any:
    """Open an operation and return its form."""
    form = page.locator(f'form.try[data-method={method}][data-path="{path}"]')
    form.evaluate("form => { form.closest('details').open = true; }")
    return form


def test_it_fits_every_width_reads_in_both_themes_and_needs_no_script(
    browser: Any, served: Served
) -> None:
    for scheme in SCHEMES:
        with tab_on(browser, served.url, scheme=scheme) as tab:
            tab.page.goto("/docs")
            tab.page.evaluate(
                "document.querySelectorAll('.operation').forEach(it => it.open = true)"
            )
            for width in (*WIDTHS, 390):
                tab.page.set_viewport_size({"width": width, "height": 900})
                assert overflow(tab.page) <= 0, width
            assert axe_faults(tab.page) == []
    context = browser.new_context(java_script_enabled=False, base_url=served.url)
    try:
        page = context.new_page()
        page.goto("/docs")
        page.locator(".operation summary").first.click()
        assert page.locator(".curl").first.is_visible()
        assert not page.locator("form.try").first.is_visible()
    finally:
        context.close()
