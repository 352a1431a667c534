"""What a release needs up to the upload: one version everywhere, a whole wheel, archives that
install in one line and answer the README's example.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from places import ROOT

sys.path.append(str(ROOT / "scripts"))
import release

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout to build from"),
]


def test_every_place_names_the_version_and_another_one_is_noticed() -> None:
    faults = release.version_faults(release.version())
    assert [fault for fault in faults if not fault.startswith("CHANGELOG.md")] == []
    assert len(release.version_faults("98.7.6")) == 7


def test_the_archives_install_in_one_line_and_answer_as_the_readme_shows(tmp_path: Path) -> None:
    wheel, archive = release.build(ROOT, tmp_path / "out", "wheel", "sdist")
    assert release.wheel_faults(wheel) == []
    again = release.rebuilt(archive, tmp_path / "source")
    assert release.digests(again) == release.digests(wheel)
    (tmp_path / "trial").mkdir()
    python = release.installed(again, tmp_path / "venv")
    assert release.trial_faults(python, tmp_path / "trial", release.version()) == []
    (other,) = release.trial_faults(python, tmp_path / "trial", "98.7.6")
    assert "memagent --version printed" in other
    assert "which is not the installed one" in str(
        release.trial_faults(Path(sys.executable), tmp_path / "trial", release.version())
    )


def test_a_wheel_with_a_file_too_many_or_too_few_is_noticed(tmp_path: Path) -> None:
    (wheel,) = release.build(ROOT, tmp_path, "wheel")
    poorer = tmp_path / f"poorer-{wheel.name}"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(poorer, "w") as copy:
        for name in whole.namelist():
            if name != "memagent/py.typed":
                copy.writestr(name, whole.read(name))
        copy.writestr("memagent/notes.txt", "left behind")
    lacks, holds = release.wheel_faults(poorer)
    assert lacks.endswith("lacks memagent/py.typed")
    assert holds.endswith("holds memagent/notes.txt, which git does not")
