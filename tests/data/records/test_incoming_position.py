"""How many records a file has is estimated from the share of it that has been read."""

import gzip
import json
import os
import random
from itertools import islice
from pathlib import Path

import pytest

from biosqueeze.data.records.incoming import FilePosition, given_texts, open_input


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_the_number_of_records_is_estimated(ending: str, tmp_path: Path) -> None:
    letters = random.Random(0)
    lines = [json.dumps({"id": n, "text": letters.randbytes(300).hex()}) for n in range(12_000)]
    content = "\n".join(lines).encode()
    path = tmp_path / f"records.{ending}"
    path.write_bytes(gzip.compress(content, 1) if ending.endswith("gz") else content)
    source = open_input(str(path))
    position = source.position
    assert position is not None
    assert position.expected(1) is None  # too little has been read
    count = len(list(islice(source.records, 6_000)))
    assert position.expected(count) == pytest.approx(12_000, rel=0.15)
    list(source.records)
    assert position.expected(12_000) is None  # all has been read


def test_an_estimate_is_round() -> None:
    assert FilePosition(10_000_000, 1_234_567).expected(4_321) == 35_000


def test_pipes_and_given_texts_have_no_position(tmp_path: Path) -> None:
    assert given_texts(("a",)).position is None
    os.mkfifo(tmp_path / "pipe")
    with os.fdopen(os.open(tmp_path / "pipe", os.O_RDWR), "w") as pipe:
        pipe.write("a text\n" * 40)
        pipe.flush()
        assert open_input(str(tmp_path / "pipe")).position is None
