"""Map each distilled layer of the student to a layer of the teacher. Torch-free; layers are counted from 1."""

import re
from collections.abc import Callable, Mapping, Sequence

from biosqueeze.errors import UsageError

LayerMap = tuple[tuple[int, int], ...]
_PAIR = re.compile(r"\s*([0-9]+)\s*:\s*([0-9]+)\s*")


def _uniform(student: int, teacher: int) -> list[int]:
    """Return TinyBERT's g(m) = m N / M (Jiao et al. 2020, section 3.1), rounded up where M does not divide m N."""
    return [-(-m * teacher // student) for m in range(1, student + 1)]


_TEACHER_LAYERS: Mapping[str, Callable[[int, int], list[int]]] = {
    "uniform": _uniform,
    "every-other": lambda student, _: [2 * m - 1 for m in range(1, student + 1)],
    "2i+1": lambda student, _: [2 * m for m in range(1, student + 1)],
    "top": lambda student, teacher: [teacher - student + m for m in range(1, student + 1)],
}
MAP_NAMES = ("source", "uniform", "every-other", "2i+1", "last", "top")


def layer_map(text: str, student: int, teacher: int, source_layers: Sequence[int] | None = None) -> LayerMap:
    """Return pairs (student layer, teacher layer), both counted from 1.

    Args:
        text: `source` pairs each layer with the teacher's layer that it was copied from, and the last with the last;
            `uniform` spreads the pairs evenly up to the last layers; `every-other` and `2i+1` pair with the layers of
            the presets distil and compact (the teacher's 1, 3, ... and 2, 4, ...); `top` pairs with the teacher's
            upper layers; `last` pairs the last layers only; or pairs such as `1:3,2:6`.
        student: number of the student's layers.
        teacher: number of the teacher's layers.
        source_layers: the teacher's layers that the student's were copied from, from 0; None if they were not.

    Raises:
        UsageError: the text is none of these, has a pair twice, or does not fit both depths; the message lists the
            maps that do.
    """
    if text == "last":
        return ((student, teacher),)
    possible = _possible(student, teacher, source_layers)
    if text == "source":
        if source_layers is None:
            raise UsageError(
                f"--layer-map source: the student is not known to be made of the teacher's layers; {possible}"
            )
        copied = tuple((layer, source + 1) for layer, source in enumerate(source_layers[:-1], 1))
        return (*copied, (student, teacher))
    pairs = _pairs(text, possible) if ":" in text else _named(text, student, teacher)
    if pairs is None:
        raise UsageError(f"--layer-map {text!r} is not a layer map; {possible}")
    for student_layer, teacher_layer in pairs:
        if not (1 <= student_layer <= student and 1 <= teacher_layer <= teacher):
            raise UsageError(
                f"--layer-map {text} pairs layer {student_layer} of the student with layer {teacher_layer} of the "
                f"teacher, but the student has {student} layers and the teacher {teacher}; {possible}"
            )
    return pairs


def _named(text: str, student: int, teacher: int) -> LayerMap | None:
    teacher_layers = _TEACHER_LAYERS.get(text)
    return tuple(enumerate(teacher_layers(student, teacher), 1)) if teacher_layers else None


def _pairs(text: str, possible: str) -> LayerMap:
    found = [_PAIR.fullmatch(pair) for pair in text.split(",")]
    pairs = tuple((int(each[1]), int(each[2])) for each in found if each)
    if len(pairs) < len(found):
        raise UsageError(f"--layer-map {text!r} does not have the form STUDENT:TEACHER,...; {possible}")
    for number, (student, teacher) in enumerate(pairs):
        if (student, teacher) in pairs[:number]:  # it would have the weight of the first
            raise UsageError(
                f"--layer-map {text} has the pair {student}:{teacher} twice; name it once, and give it a higher "
                "--layer-weights"
            )
    return pairs


def _possible(student: int, teacher: int, source_layers: Sequence[int] | None) -> str:
    """Return the maps that fit these depths, for messages."""
    always = {"last": True, "source": source_layers is not None}
    fit = [name for name in MAP_NAMES if always.get(name) or _fits(name, student, teacher)]
    return f"possible for {student} and {teacher} layers: {', '.join(fit)}, or pairs like 1:{min(2, teacher)}"


def _fits(name: str, student: int, teacher: int) -> bool:
    return name in _TEACHER_LAYERS and all(1 <= layer <= teacher for layer in _TEACHER_LAYERS[name](student, teacher))
