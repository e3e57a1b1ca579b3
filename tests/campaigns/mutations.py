"""Damage a valid file: hypothesis draws what is done to it, by the format."""

import gzip
import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Mutation = tuple[str, Any]
"""Name of the damage, and what it needs."""

_DEEP = 100_000
_LONG = 20_000_000
_MANY = 20_000
_DIGITS = "9" * 5000
_NUMBERS = ("0", "-1", "1.5", "1e308", "NaN", "Infinity", "1000000", "1000000000000")
_STRINGS = (
    '""',
    '"word"',
    '"[/red]"',
    r'"\u001b[31mred"',
    r'"\ud800"',
    '"../../outside"',
    '"/etc/passwd"',
    r'"\u0000"',
)
_VALUES = (*_NUMBERS, *_STRINGS, "null", "true", "[]", "{}", "[[]]", "[{}]", '{"":{}}')
_ENDLESS = (_DIGITS, "[" * _DEEP + "]" * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP, f'"{"x" * 100_000}"')
_DTYPES = ('"F16"', '"BF16"', '"I64"', '"F64"', '"BOOL"', '"F8_E4M3"', '"X"')
_SHAPES = ("[]", "[1]", "[-1,4]", "[1000000000,1000000000]", "[0,0]")
_TOML_VALUES = (*_VALUES, *_ENDLESS[:2], "1979-05-27", "0x" + "f" * 5000, "inf", '"../../outside"')
_SHARES = st.integers(0, 999).map(lambda thousandths: thousandths / 1000)


def _damage(name: str, needs: st.SearchStrategy[Any]) -> st.SearchStrategy[Mutation]:
    return st.tuples(st.just(name), needs)


def _one_of(name: str, *needs: Any) -> st.SearchStrategy[Mutation]:
    return _damage(name, st.sampled_from(needs))


def _somewhere(name: str, *needs: Any) -> st.SearchStrategy[Mutation]:
    """Draw a damage at a place: a share of the file."""
    return _damage(name, st.tuples(_SHARES, st.sampled_from(needs)))


_BYTES = st.one_of(
    _damage("cut", _SHARES),
    _damage("flip", st.lists(st.tuples(_SHARES, st.integers(1, 255)), min_size=1, max_size=8)),
    _damage("insert", st.tuples(_SHARES, st.binary(min_size=1, max_size=64))),
    _damage("zeros", st.tuples(_SHARES, st.integers(1, 400))),
    _damage("append", st.binary(min_size=1, max_size=64)),
    _one_of("repeat", 2, 3),
)
_KINDS = _one_of("kind", "secret", "zero", "loop", "dangling", "fifo", "directory", "gone", "here", "null")
_JSON = st.one_of(
    _somewhere("value", *_VALUES),
    _somewhere("value", *_ENDLESS),
    _damage("drop", _SHARES),
    _damage("twice", _SHARES),
    _one_of("whole", *_VALUES, *_ENDLESS),
)
_TEXT = st.one_of(
    _one_of("encoding", "utf-16", "utf-8-sig", "utf-32", "latin-1", "cp037"),
    _one_of("ends", b"\r\n", b"\r", b"\x0b", b"\x85", b"\xe2\x80\xa8", b"", b"\n\n\n"),
    _somewhere("insert", b"\0", b"\xed\xa0\x80", b"\xff\xfe", b"\x1b[31m", b"[/red]", b"\xe2\x80\xae", b"\n\n", b"\t"),
    _somewhere("insert", b'"', b"'", b"\\", b"{", b"}", b"[", b"-1", b"nan", _DIGITS.encode()),
    _somewhere("insert", b"<!ENTITY x 'y'>", b"<![CDATA[", b"&lol;", b"&#0;", b"<a>", b"</passage>"),
    _somewhere("words", "", "O", "\t", "x" * 70_000, "-1", "nan", _DIGITS),
    _damage("endless", _SHARES),
    _damage("drop line", _SHARES),
)
_GZIP = _one_of("gzip", "bomb", "many lines", "cut", "garbage", "two members", "checksum", "plain", "twice")
_SAFETENSORS = st.one_of(
    _damage("header size", st.integers(0, 2**64 - 1)),
    _one_of("header size", 0, 1, 7, 2**31, 2**63),
    _damage("header", _JSON),
    _damage("header", _somewhere("value", *_DTYPES, *_SHAPES)),
    _one_of("weights", float("nan"), float("inf"), -float("inf"), 1e38, 0.0),
)
_XML = st.one_of(_one_of("bomb", None), _one_of("external", None), _damage("tags", st.integers(1_000, 200_000)))
BY_FORMAT: dict[str, st.SearchStrategy[Mutation]] = {
    "safetensors": st.one_of(_SAFETENSORS, _SAFETENSORS, _BYTES, _KINDS),
    "json": st.one_of(_JSON, _JSON, _JSON, _BYTES, _KINDS, _TEXT),
    "jsonl": st.one_of(_TEXT, _TEXT, _BYTES, _KINDS, _damage("line", _JSON)),
    "onnx": st.one_of(_BYTES, _BYTES, _KINDS),
    "toml": st.one_of(_TEXT, _somewhere("toml", *_TOML_VALUES), _BYTES, _KINDS),
    "text": st.one_of(_TEXT, _TEXT, _BYTES, _KINDS),
    "gz": st.one_of(_GZIP, _GZIP, _BYTES, _KINDS, _damage("inside", st.one_of(_TEXT, _BYTES))),
    "xml": st.one_of(_XML, _TEXT, _TEXT, _BYTES, _KINDS),
}


def apply(mutation: Mutation, file: Path) -> None:
    """Damage a file."""
    name, needs = mutation
    if name == "kind":
        _replace_by(needs, file)
    elif name == "inside":
        file.write_bytes(gzip.compress(_changed(needs, gzip.decompress(file.read_bytes()))))
    else:
        file.write_bytes(_changed(mutation, file.read_bytes()))


def _changed(mutation: Mutation, content: bytes) -> bytes:
    name, needs = mutation
    return _CHANGES[name](content, needs)


def _replace_by(kind: str, file: Path) -> None:
    """Put something in a file's place that is no regular file of this directory."""
    file.unlink()
    targets = {"zero": "/dev/zero", "null": "/dev/null", "loop": file.name, "dangling": "nowhere", "here": "."}
    if kind == "secret":
        secret = Path(os.environ["TMPDIR"]) / "secret"
        secret.write_text(SECRET, encoding="utf-8")
        file.symlink_to(secret)
    elif kind in targets:
        file.symlink_to(targets[kind])
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
        shutil.copy(__file__, file / "inside")


SECRET = "a secret outside of the checkpoint"


def _at(share: float, content: bytes) -> int:
    return min(int(share * len(content)), max(len(content) - 1, 0))


def _flip(content: bytes, places: list[tuple[float, int]]) -> bytes:
    changed = bytearray(content)
    for share, mask in places:
        if changed:
            changed[_at(share, content)] ^= mask
    return bytes(changed)


def _insert(content: bytes, what: tuple[float, bytes]) -> bytes:
    at = _at(what[0], content)
    return content[:at] + what[1] + content[at:]


def _zeros(content: bytes, what: tuple[float, int]) -> bytes:
    at = _at(what[0], content)
    return content[:at] + bytes(min(what[1], len(content) - at)) + content[at + what[1] :]


def _json_nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values; of long lists and objects (a vocabulary) only the first few."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [node for key, item in list(items)[:40] for node in _json_nodes(item, (*path, key))]
    return [path, *below]


def _edit_json(content: bytes, share: float, edit: Callable[[Any, Any], None]) -> bytes:
    value = json.loads(content)
    nodes = [node for node in _json_nodes(value) if node]
    if not nodes:
        return content
    *parents, last = nodes[min(int(share * len(nodes)), len(nodes) - 1)]
    holder = value
    for key in parents:
        holder = holder[key]
    edit(holder, last)
    return json.dumps(value).encode()


_MARK = "@@@"


def _json_value(content: bytes, what: tuple[float, str]) -> bytes:
    marked = _edit_json(content, what[0], lambda holder, key: holder.__setitem__(key, _MARK))
    return marked.replace(json.dumps(_MARK).encode(), what[1].encode())


def _json_drop(content: bytes, share: float) -> bytes:
    return _edit_json(content, share, lambda holder, key: holder.__delitem__(key))


def _json_twice(content: bytes, share: float) -> bytes:
    """Give an object the same key twice, with other values."""

    def edit(holder: Any, key: Any) -> None:
        if isinstance(holder, dict):
            holder[_MARK] = key

    marked = _edit_json(content, share, edit).decode()
    return re.sub(rf'"{_MARK}": ("[^"]*")', r"\1: 7", marked).encode()


def _line(content: bytes, mutation: Mutation) -> bytes:
    first, end, rest = content.partition(b"\n")
    return _changed(mutation, first) + end + rest


def _header(content: bytes, mutation: Mutation) -> bytes:
    size = struct.unpack("<Q", content[:8])[0]
    header = _changed(mutation, content[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _weights(content: bytes, value: float) -> bytes:
    """Set the last quarter of the weights to a value."""
    count = (len(content) - 8 - struct.unpack("<Q", content[:8])[0]) // 16
    return content[: len(content) - 4 * count] + struct.pack("<f", value) * count


def _encoding(content: bytes, name: str) -> bytes:
    return content.decode().encode(name, errors="replace")


def _words(content: bytes, what: tuple[float, str]) -> bytes:
    """Replace one column."""
    parts = re.split(rb"([\t\n])", content)
    parts[2 * int(what[0] * (len(parts) // 2))] = what[1].encode()
    return b"".join(parts)


def _toml(content: bytes, what: tuple[float, str]) -> bytes:
    lines = content.split(b"\n")
    numbers = [number for number, line in enumerate(lines) if b" = " in line]
    number = numbers[min(int(what[0] * len(numbers)), len(numbers) - 1)]
    lines[number] = lines[number].partition(b" = ")[0] + b" = " + what[1].encode()
    return b"\n".join(lines)


def _drop_line(content: bytes, share: float) -> bytes:
    lines = content.split(b"\n")
    del lines[min(int(share * len(lines)), len(lines) - 1)]
    return b"\n".join(lines)


def _gzip(content: bytes, kind: str) -> bytes:
    text = gzip.decompress(content)
    return {
        "bomb": lambda: gzip.compress(bytes(15 * _LONG), 9),
        "many lines": lambda: gzip.compress(b"a\n" * _MANY),
        "cut": lambda: content[: len(content) // 2],
        "garbage": lambda: content + b"garbage",
        "two members": lambda: content + content,
        "checksum": lambda: content[:-8] + bytes(8),
        "plain": lambda: text,
        "twice": lambda: gzip.compress(content),
    }[kind]()


def _entities(content: bytes, _: None) -> bytes:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    text = content.decode().replace("<collection>", f'<!DOCTYPE c [<!ENTITY l0 "lol">{levels}]><collection>')
    return text.replace("patients", "&l9;", 1).encode()


def _external(content: bytes, _: None) -> bytes:
    text = content.decode()
    text = text.replace("<collection>", '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]><collection>')
    return text.replace("patients", "&x;", 1).encode()


_CHANGES: dict[str, Callable[[bytes, Any], bytes]] = {
    "cut": lambda content, share: content[: _at(share, content)],
    "flip": _flip,
    "insert": _insert,
    "zeros": _zeros,
    "append": lambda content, more: content + more,
    "repeat": lambda content, times: content * times,
    "value": _json_value,
    "drop": _json_drop,
    "twice": _json_twice,
    "whole": lambda _, value: value.encode(),
    "line": _line,
    "header size": lambda content, size: struct.pack("<Q", size) + content[8:],
    "header": _header,
    "weights": _weights,
    "encoding": _encoding,
    "ends": lambda content, end: content.replace(b"\n", end),
    "words": _words,
    "endless": lambda content, share: _insert(content, (share, b"x" * (5 * _LONG))),
    "drop line": _drop_line,
    "toml": _toml,
    "gzip": _gzip,
    "bomb": _entities,
    "tags": lambda content, count: content.replace(b"<passage>", b"<passage>" + b"<a>" * count, 1),
    "external": _external,
}
