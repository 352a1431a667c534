"""Files that are no export of mem0: one plain error each."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.core.errors import InputError
from memagent.integrations.mem0_records import read_mem0


@pytest.mark.parametrize("content", ["", "not json", "[1]", '{"results": 5}', "[{}]", "\ud800"])
def test_what_is_no_export_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        read_mem0(file)
    with pytest.raises(InputError):
        read_mem0(tmp_path)
    with pytest.raises(InputError):
        read_mem0(tmp_path / "missing")
