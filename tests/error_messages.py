"""What every error that a user may cause has in common: one line, which names what is wrong and where."""

from collections.abc import Callable

import pytest

from biosqueeze.errors import SqueezeError


def explained(act: Callable[[], object], *words: str) -> None:
    """Check that an action fails with one line that has all of the words."""
    with pytest.raises(SqueezeError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
