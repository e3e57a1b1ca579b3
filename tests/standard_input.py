"""Standard input as a pipe gives it: bytes that cannot be read twice."""

import io
import sys

import pytest


def pipe_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
