"""Programs themselves in front of `memagent serve`: the transcript of the integrations page.

Needs the programs on the path, or in the folder that MEMAGENT_PROGRAMS names; skipped
without. They are kept from any other address than this machine's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_ground import Ground, client_ground
from litellm_marks import LITELLM_MARKS
from places import ROOT
from scripted_server import Body

PATH = os.pathsep.join((os.environ.get("MEMAGENT_PROGRAMS", ""), os.environ.get("PATH", "")))
PAGE = ROOT / "docs" / "integrations" / "index.md"
TOLD, ASKED = "I keep eleven otters in Aveiro.", "Where do I keep my otters?"
TALK = (
    ("ana", f'claude -p "{TOLD}"'),
    ("ana", f'codex exec --skip-git-repo-check "{ASKED}"'),
    ("ben", f'cn -p "{ASKED}"'),
    ("ana", f'cn -p "{ASKED}"'),
)
MISSING = [name for name in ("claude", "codex", "cn") if shutil.which(name, path=PATH) is None]
pytestmark = [pytest.mark.process, *LITELLM_MARKS]


def provider(body: Body, index: int) -> str:
    """Answer by what it is shown, and by nothing else."""
    messages: Any = body["messages"]
    if ASKED not in str(messages[-1]["content"]):
        return "I will remember that."
    return "In Aveiro." if "otters in Aveiro" in str(messages) else "You have not told me."


def claude(url: str, user: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "any",
        "ANTHROPIC_MODEL": "memagent",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "memagent",
        "ANTHROPIC_CUSTOM_HEADERS": f"X-Memagent-User: {user}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def codex(url: str, user: str, home: Path) -> dict[str, str]:
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        f"""
model = "memagent"
model_provider = "memagent"
web_search = "disabled"
agents = {{ enabled = false }}
analytics = {{ enabled = false }}

[model_providers.memagent]
name = "memagent"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "MEMAGENT_KEY"
http_headers = {{ X-Memagent-User = "{user}" }}
"""
    )
    return {"MEMAGENT_KEY": "any"}


def cn(url: str, user: str, home: Path) -> dict[str, str]:
    (home / ".continue").mkdir(exist_ok=True)
    (home / ".continue" / "config.yaml").write_text(
        f"""
name: own
version: 1.0.0
schema: v1
models:
  - {{name: memagent, provider: openai, model: memagent, apiBase: {url}/v1, apiKey: any,
     roles: [chat], requestOptions: {{extraBodyProperties: {{user: {user}}}}}}}
"""
    )
    return {"CONTINUE_TELEMETRY_ENABLED": "0"}


SETUPS: dict[str, Callable[[str, str, Path], dict[str, str]]] = {
    "claude": claude,
    "codex": codex,
    "cn": cn,
}


def run(ground: Ground, user: str, command: str, home: Path) -> str:
    """Run a command as a user would, and return what it prints."""
    words = shlex.split(command)
    own = SETUPS[words[0]](ground.url, user, home)
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    home_alone = {"HOME": str(home), "PATH": PATH, "NO_PROXY": "127.0.0.1", **nowhere}
    if words[0] == "cn":
        words += ["--config", str(home / ".continue" / "config.yaml")]
    done = subprocess.run(
        words,
        env={**home_alone, **own},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: see docs/integrations")
@pytest.mark.timeout(600)
def test_the_page_shows_what_programs_say_and_remember(tmp_path: Path) -> None:
    lines: list[str] = []
    with client_ground(tmp_path, provider) as ground:
        for user, command in TALK:
            lines += [f"{user}$ {command}", run(ground, user, command, tmp_path)]
        assert ground.turns("ana") == [TOLD, "I will remember that.", *([ASKED, "In Aveiro."] * 2)]
        assert ground.turns("ben") == [ASKED, "You have not told me."]
    page = PAGE.read_text(encoding="utf-8")
    assert "```text\n{}\n```".format("\n".join(lines)) in page, "\n".join(lines)


def test_the_page_shows_how_each_program_is_set_up(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for command in (command for _, command in TALK):
        assert command in page
    for name, value in claude("SERVICE", "ana", tmp_path).items():
        assert name in page, f"{name}={value}"
    codex("SERVICE", "ana", tmp_path)
    for line in (tmp_path / ".codex" / "config.toml").read_text().strip().splitlines():
        assert line in page, line
