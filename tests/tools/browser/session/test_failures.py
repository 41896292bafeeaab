"""The words for errors of any kind."""

from __future__ import annotations

import pytest

from statehold.tools.browser.errors import describe_exception


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "TimeoutError: it took too long"),
        (TimeoutError("no answer."), "TimeoutError: no answer"),
        (FileNotFoundError(2, "No such file", "/srv/first"), "FileNotFoundError: No such file"),
        (OSError("no room"), "OSError: no room"),
        (
            ImportError("cannot import name 'a' from 'b' (/srv/init/b.py)"),
            "ImportError: cannot import name 'a' from 'b' (b.py)",
        ),
        (
            ValueError("no folder /srv/app and no file /srv/a/b or ~/c, but http://h/p/q"),
            "ValueError: no folder app and no file b or c, but http://h/p/q",
        ),
    ],
)
def test_an_error_is_described_without_folders(error: Exception, words: str) -> None:
    assert describe_exception(error) == words
