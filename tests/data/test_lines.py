import gzip

import pytest

from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_only_line_ends_and_the_byte_order_mark_go(tmp_path, name):
    data = "\ufeff a\t\r\n\nb \u2028c\x0b\n\r\n\ufefflast".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    lines = list(numbered_lines(tmp_path / name))
    assert lines == [(1, " a\t"), (2, ""), (3, "b \u2028c\x0b"), (4, ""), (5, "\ufefflast")]


def test_an_unreadable_path_is_explained(tmp_path):
    with pytest.raises(SqueezeError, match=r"gone\.tsv cannot be read \(No such file"):
        list(numbered_lines(tmp_path / "gone.tsv"))


def test_a_directory_is_explained(tmp_path):
    with pytest.raises(SqueezeError, match="cannot be read"):
        list(numbered_lines(tmp_path))
