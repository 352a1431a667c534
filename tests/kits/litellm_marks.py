"""Marks of the tests that run the real litellm."""

from __future__ import annotations

import importlib.util

import pytest

LITELLM_MARKS = [
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None,
        reason='needs the extra: pip install "memagent[llm]"',
    ),
    # what the vendor and its dependencies say about themselves is not ours to fix
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*ReadOnly:UserWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
]
