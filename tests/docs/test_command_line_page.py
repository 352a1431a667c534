"""The page on the command line is true: its commands run, every command and option is in it.

Run as a script, this writes the page's outputs anew, and the tables of the two commands
for evaluation and training; with `tables`, only these.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from command_line_kit import ROOT, SAMPLE, moved_into, run
from typer.main import get_command

from environments.evaluate import app as eval_app
from memagent.cli.app import app
from train.run.command import app as train_app

PAGE = ROOT / "docs" / "command-line.md"
CONSOLE = re.compile(r"^```(console|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {"memagent-eval": eval_app, "memagent-train": train_app}
TABLES = re.compile(r"(<!-- options of (memagent-\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
VARYING = {
    r"\b(mem|ses)_[0-9a-f]{20}": r"\1_ID",
    r"\b\d+ [A-Z][a-z]+ 20(?:2[5-9]|[3-9]\d)": "TODAY",
    r"\b20(?:2[5-9]|[3-9]\d)-\d\d-\d\d(?: \d\d:\d\d)?": "TODAY",
    r"[\d.,]+ s, [\d.,]+ turns/s": "RATE",
    r'"(?:seconds|turns_per_s)": [\d.]+': "RATE",
    r"\bchat-[0-9a-f]{12}": "THREAD",
    r"process \d+": "process",
    r"\d+\.\d{3,}": "FIGURE",
}


def played(page: str, folder: Path) -> str:
    """Return the page with what its commands print now.

    They run one after the other in a folder with the sample beside them.
    """
    (folder / SAMPLE.name).write_bytes(SAMPLE.read_bytes())

    def block(match: re.Match[str]) -> str:
        if match[1] == "toml":
            settings = (folder / "memagent.toml").read_text(encoding="utf-8")
            return f"```toml\n{homely(settings, folder)}```"
        parts: list[str] = []
        for line in re.findall(r"^\$ .*", match[2], re.MULTILINE):
            said, _, last = line.removeprefix("$ ").rpartition(" | ")
            says = shlex.split(said)[1] + "\n" if said else None
            printed = run(*shlex.split(last)[1:], says=says).output
            parts.append(f"{line}\n{homely(printed, folder)}")
        return "```console\n" + "\n".join(parts) + "```"

    return CONSOLE.sub(block, page)


def tabled(page: str) -> str:
    """Return the page with the present options of the commands for evaluation and training."""
    return TABLES.sub(lambda match: f"{match[1]}{options_of(match[2])}{match[3]}", page)


def options_of(program: str) -> str:
    """Write a line of help and a table of arguments and options for every command of a program."""
    group: Any = get_command(PROGRAMS[program])
    parts: list[str] = []
    for name, command in group.commands.items():
        about = " ".join((command.help or "").split())
        rows = [
            f"| {_spelled(one)} | {_meaning(one)} |"
            for one in command.params
            if "--help" not in one.opts and not getattr(one, "hidden", False)
        ]
        parts.append(
            f"\n`{program} {name}`: {about}\n\n| takes | meaning |\n| --- | --- |\n"
            + "\n".join(rows)
            + "\n"
        )
    return "".join(parts) + "\n"


def _spelled(parameter: Any) -> str:
    name = parameter.opts[0]
    return f"`{name}`" if name.startswith("-") else f"`{name.upper()}`"


def _meaning(parameter: Any) -> str:
    said = " ".join((parameter.help or "").split()).replace("|", "\\|")
    kind = parameter.type_descriptor.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    said += f" One of {', '.join(map(str, choices))}." if choices else ""
    default = getattr(parameter, "default", None)
    plain = isinstance(default, str | int | float | Enum) and not isinstance(default, bool)
    return (
        f"{said} Default: {default.value if isinstance(default, Enum) else default}."
        if plain
        else said
    )


def homely(text: str, folder: Path) -> str:
    """Replace this machine's paths in an output."""
    places = {
        str(folder): "/home/ana/talks",
        sys.executable: "/home/ana/.venv/bin/python",
        str(ROOT): "/home/ana/memagent",
    }
    for place, name in places.items():
        text = text.replace(place, name)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def comparable(page: str) -> list[str]:
    """Return the lines of the page without what differs from run to run.

    Of `memagent doctor` only the names of its findings remain.
    """
    body, _, doctor = page.partition("$ memagent doctor")
    for pattern, name in VARYING.items():
        body = re.sub(pattern, name, body)
    return [
        *(" ".join(line.split()) for line in body.splitlines()),
        *re.findall(r"^[a-z]\S*", doctor, re.MULTILINE),
    ]


@pytest.mark.torch  # the page lists what every extra adds, and the training commands
def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = moved_into(tmp_path, monkeypatch, columns=100)
    page = PAGE.read_text(encoding="utf-8")
    assert comparable(played(page, folder)) == comparable(page), (
        f"write the page anew: PYTHONPATH=tests/kits python {Path(__file__).relative_to(ROOT)}"
    )


def test_the_page_documents_every_command_and_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    general, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    common, own = sections[0], {section.partition("\n")[0]: section for section in sections[1:]}
    group: Any = get_command(app)
    assert sorted(own) == sorted([*group.commands, *PROGRAMS])
    for name, command in group.commands.items():
        for option in (
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("-")
        ):
            assert f"`{option}" in own[name] + common + general, (
                f"memagent {name} {option} is not documented"
            )
    for option in (option for parameter in group.params for option in parameter.opts):
        assert f"{option}`" in general or f"`memagent {option}" in general, (
            f"memagent {option} is not documented"
        )


def test_the_page_has_what_the_other_two_commands_take() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _ in TABLES.findall(page)} == set(PROGRAMS)
    assert tabled(page) == page, (
        f"write the tables anew: PYTHONPATH=tests/kits python {Path(__file__).relative_to(ROOT)} tables"
    )
    for program, typer_app in PROGRAMS.items():
        commands: Any = get_command(typer_app)
        assert all(f"`{program} {name}`: " in page for name in commands.commands)


if __name__ == "__main__" and "tables" in sys.argv:
    PAGE.write_text(tabled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        shown = played(
            PAGE.read_text(encoding="utf-8"), moved_into(Path(place).resolve(), patch, columns=100)
        )
        PAGE.write_text(tabled(shown), encoding="utf-8")
