"""Rules declared beside options: checked at construction, shown as hints."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.options import (
    Argument,
    Bounds,
    Choices,
    Data,
    Excludes,
    OnlyWith,
    Requires,
    StageOptions,
    Syntax,
    UsedBy,
    between_0_and_1,
    named_number,
    option_fields,
    positive_numbers,
    whole_numbers,
)
from biosqueeze.options.rules import Rule


@dataclass(frozen=True, kw_only=True)
class ExampleOptions(StageOptions):
    """Every rule once."""

    checkpoint: Annotated[str | None, "A checkpoint.", Argument(unless="preset")] = None
    preset: Annotated[str | None, "A preset."] = "a"
    count: Annotated[int, "A count.", Bounds(least=1, most=5)] = 1
    rate: Annotated[float | None, "A share.", between_0_and_1()] = None
    cache: Annotated[str | None, "A directory."] = None
    top: Annotated[int | None, "A number of logits.", Requires("cache", why="the place of the logits")] = None
    widths: Annotated[str | None, "Numbers.", Syntax("N,N", whole_numbers, "1,2"), Excludes("cache")] = None
    format: Annotated[Literal["json", "text"], "A format."] = "json"
    indent: Annotated[int, "An indent.", OnlyWith("format", "json")] = 2
    out: Annotated[str | None, "A file.", Data()] = None
    force: Annotated[bool, "Replace it.", Requires("out")] = False
    method: Annotated[str, "A method.", Choices("quantizers")] = "onnx-dynamic"
    observer: Annotated[str, "For some methods.", UsedBy("quantizers", "method")] = "minmax"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 6}, "--count must be at least 1 and at most 5, not 6"),
        ({"count": 2.5}, "--count must be a whole number, not 2.5"),
        ({"count": True}, "--count must be a whole number, not True"),
        ({"rate": 0.0}, "--rate must be above 0 and below 1, not 0"),
        ({"rate": float("nan")}, "--rate must be a finite number, not nan"),
        ({"top": 3}, "--top needs --cache (the place of the logits); give --cache TEXT too, or leave --top out"),
        ({"widths": "1,x"}, "--widths '1,x' is not of the form N,N; write for example 1,2"),
        ({"widths": "1", "cache": "c"}, "--widths cannot be combined with --cache; give one of the two"),
        ({"format": "text", "indent": 4}, "--indent is only for --format json, not text; give that, or"),
        ({"format": "jsno"}, "--format must be json or text, not 'jsno'. Did you mean 'json'?"),
        ({"out": "-", "force": True}, "--force needs --out"),
        ({"method": "inc"}, "--method must be inc-static or onnx-dynamic, not 'inc'."),
        ({"observer": "kl"}, "--observer is not for --method onnx-dynamic; leave it out, or give --method inc-static"),
        ({"checkpoint": "x", "preset": "b"}, "give either CHECKPOINT (or - in a pipe) or --preset, and not both; both"),
    ],
)
def test_broken_rules_are_explained(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        ExampleOptions(**{"checkpoint": "x", **values})
    assert message in str(raised.value)


def test_values_within_the_rules_are_accepted() -> None:
    options = ExampleOptions(checkpoint="x", count=5, rate=0.5, cache="c", top=3, out="file", force=True)
    assert options.is_given("count")
    assert not options.is_given("format")


def test_a_written_default_counts_as_given() -> None:
    written = {"indent": "flag"}
    assert ExampleOptions(checkpoint="x", sources=written).is_given("indent")
    with pytest.raises(UsageError, match="--indent is only for --format json"):
        ExampleOptions(checkpoint="x", format="text", sources=written)
    ExampleOptions(checkpoint="x", sources={"force": "recipe"})  # off: nothing to refuse


def test_hints_name_the_conditions() -> None:
    fields = {field.name: field for field in option_fields(ExampleOptions)}
    hints = {name: m.hint(field) for name, field in fields.items() for m in field.markers if isinstance(m, Rule)}
    assert hints == {
        "count": "1 to 5",
        "rate": "above 0, below 1",
        "top": "needs --cache",
        "widths": "not with --cache",
        "indent": "only with --format json",
        "force": "needs --out",
        "observer": "only with --method inc-static",
    }


def test_one_of_several_options_is_needed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Cut(StageOptions):
        """At least one."""

        NEEDS_ONE_OF: ClassVar[tuple[str, ...]] = ("layers", "heads")

        layers: Annotated[int | None, "Layers."] = None
        heads: Annotated[int | None, "Heads."] = None

    Cut(heads=1)
    with pytest.raises(UsageError, match="nothing to do: give --layers or --heads"):
        Cut()


def test_overridden_fields_keep_their_rules() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Narrower(ExampleOptions):
        """Another default and help."""

        count: Annotated[int, "Another count."] = 2

    with pytest.raises(UsageError, match="--count must be at least 1"):
        Narrower(checkpoint="x", count=0)


@pytest.mark.parametrize(("text", "numbers"), [("1,8", (1, 8)), (" 4 ", (4,)), ("2,1,2", (2, 1))])
def test_whole_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert whole_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,", "0", "-1", "1.5"])
def test_malformed_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        whole_numbers(text)


def test_other_values() -> None:
    assert positive_numbers("2,0.5") == (2.0, 0.5)
    assert named_number("f1=0.80") == ("f1", 0.8)
    for text in ("f1", "=1", "f1=nan", "f1=inf"):
        with pytest.raises(ValueError, match=r"^"):
            named_number(text)
    for text in ("0", "inf", "1,nan"):
        with pytest.raises(ValueError, match=r"^"):
            positive_numbers(text)
