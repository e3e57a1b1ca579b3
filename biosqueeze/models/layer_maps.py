"""Which layer of the student learns from which layer of the teacher. Torch-free; layers are counted from 1."""

from collections.abc import Callable, Mapping, Sequence

from biosqueeze.errors import UsageError

LayerMap = tuple[tuple[int, int], ...]


def _uniform(student: int, teacher: int) -> list[int]:
    """TinyBERT's g(m) = m N / M (Jiao et al. 2020, section 3.1), rounded up where the depths do not divide."""
    return [-(-m * teacher // student) for m in range(1, student + 1)]


_TEACHERS: Mapping[str, Callable[[int, int], list[int]]] = {
    "uniform": _uniform,
    "every-other": lambda student, _: [2 * m - 1 for m in range(1, student + 1)],
    "2i+1": lambda student, _: [2 * m for m in range(1, student + 1)],
    "top": lambda student, teacher: [teacher - student + m for m in range(1, student + 1)],
}
NAMES = ("origin", "uniform", "every-other", "2i+1", "last", "top")


def layer_map(text: str, student: int, teacher: int, origin: Sequence[int] | None = None) -> LayerMap:
    """The pairs (student layer, teacher layer), both counted from 1.

    Args:
        text: `origin` pairs each layer with the one that it was cut from, but the last with the last; `uniform` spreads
            them over the teacher, the last ones meeting; `every-other` and `2i+1` are the layers that the presets
            distil and compact are made of (the teacher's 1, 3, ... and 2, 4, ...); `top` is the teacher's uppermost;
            `last` pairs the last layers alone; or pairs such as `1:3,2:6`.
        student: number of its layers.
        teacher: number of its layers.
        origin: the teacher's layers that the student's were, from 0; None where they were none of its.

    Raises:
        UsageError: it is none of these, or does not fit both depths; the message lists what does.
    """
    if text == "last":
        return ((student, teacher),)
    possible = _possible(student, teacher, origin)
    if text == "origin":
        if origin is None:
            raise UsageError(f"--layer-map origin: nothing says that the student was cut from the teacher; {possible}")
        return (*((mine, its + 1) for mine, its in enumerate(origin[:-1], 1)), (student, teacher))
    pairs = _pairs(text, possible) if ":" in text else _named(text, student, teacher)
    if pairs is None:
        raise UsageError(f"--layer-map {text!r} is no layer map; {possible}")
    for mine, its in pairs:
        if not (1 <= mine <= student and 1 <= its <= teacher):
            raise UsageError(
                f"--layer-map {text}: layer {mine} of the student would learn from layer {its} of the teacher, but the "
                f"student has {student} and the teacher {teacher}; {possible}"
            )
    return pairs


def _named(text: str, student: int, teacher: int) -> LayerMap | None:
    choose = _TEACHERS.get(text)
    return tuple(enumerate(choose(student, teacher), 1)) if choose else None


def _pairs(text: str, possible: str) -> LayerMap:
    try:
        pairs = [tuple(int(number) for number in pair.split(":")) for pair in text.split(",")]
        return tuple((mine, its) for mine, its in pairs)
    except ValueError:
        raise UsageError(f"--layer-map {text!r} does not read STUDENT:TEACHER,...; {possible}") from None


def _possible(student: int, teacher: int, origin: Sequence[int] | None) -> str:
    """The maps that fit these depths, for messages."""
    always = {"last": True, "origin": origin is not None}
    fit = [name for name in NAMES if always.get(name) or _fits(name, student, teacher)]
    return f"possible for {student} and {teacher} layers: {', '.join(fit)}, or pairs like 1:{min(2, teacher)}"


def _fits(name: str, student: int, teacher: int) -> bool:
    return name in _TEACHERS and all(1 <= layer <= teacher for layer in _TEACHERS[name](student, teacher))
