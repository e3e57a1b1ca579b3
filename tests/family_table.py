"""The table of examples/guides/families.md: a column for each command and backend, and the test that covers it.

python -m tests.family_table        writes the table into the page
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from biosqueeze.models.families import FAMILIES, Family
from biosqueeze.vocabularies.families import FAMILIES as VOCABULARIES
from tests import pico

PAGE = Path(__file__).parents[1] / "examples" / "guides" / "families.md"
_FROM, _TO = "<!-- python -m tests.family_table -->\n", "<!-- end of the table -->\n"


@dataclass(frozen=True)
class Column:
    """A command, or a backend: the families are those over which its test is parametrized."""

    title: str
    test: str
    """Module and function."""
    refuses: Callable[[Family], bool] = lambda _: False
    """Which families the test expects to be refused, with a message."""

    def cell(self, name: str) -> str:
        """`yes`, `no` where the command refuses the family, and nothing where no test covers its modelling code."""
        if self.refuses(FAMILIES[name]):
            return "no"
        return "yes" if {name, pico.ROWS[name].same_code_as} & families_of(self.test) else ""


def _keeps_width(family: Family) -> bool:
    return not family.supports_narrowing


def _no_vocabulary(family: Family) -> bool:
    return family.name not in VOCABULARIES


def _no_questions(family: Family) -> bool:
    return family.name not in pico.ANSWER_QUESTIONS


_CHAIN = "tests.stages.test_families"
COLUMNS = (
    Column("`inspect`", "tests.stages.test_inspect:test_parameters_are_those_of_the_model"),
    Column("`shrink --layers`", "tests.stages.test_shrink:test_every_family_in_its_published_layout"),
    Column("`--ffn --heads`", "tests.models.cuts.test_width:test_both_widths_of_every_head", _keeps_width),
    Column(
        "`--student tiny`",
        "tests.models.named.test_students:test_every_preset_of_every_family",
        lambda f: f.has_bottleneck,
    ),
    Column("`finetune`", f"{_CHAIN}:test_fine_tuned_teacher_of_a_bert"),
    Column("on questions", f"{_CHAIN}:test_fine_tuned_on_questions", _no_questions),
    Column("`distill` on text", f"{_CHAIN}:test_teacher_of_its_own_family_on_text"),
    Column("teacher of a BERT", f"{_CHAIN}:test_fine_tuned_teacher_of_a_bert"),
    Column("student of a BERT", f"{_CHAIN}:test_student_of_a_bert"),
    Column("`pretrain` further", "tests.stages.test_pretrain:test_a_continued_model_loads_with_no_missing_key"),
    Column("`vocab`", "tests.stages.test_vocab:test_stock_tokenizer_of_each_family", _no_vocabulary),
    Column("`predict`, `evaluate`, `bench`", f"{_CHAIN}:test_predictions_scores_and_times"),
    Column("torch", f"{_CHAIN}:test_predictions_scores_and_times"),
    Column("onnxruntime", "tests.stages.test_export:test_graph_equals_stock_transformers"),
    Column("onnxruntime:int8", "tests.stages.test_quantize:test_every_family_in_a_pipe"),
    Column("openvino", "tests.backends.test_openvino:test_float_is_stock_transformers"),
)


def families_of(test: str) -> set[str]:
    """The families over which a test is parametrized, itself or through the fixture `pico_any`."""
    module, _, name = test.partition(":")
    function: Any = getattr(import_module(module), name)
    found = set(pico.FAMILIES) if "pico_any" in signature(function).parameters else set()
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            if "family" in names:
                rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
                found |= {row[names.index("family")] for row in rows}
    return found


def table() -> str:
    """The table in Markdown: a row for each family."""
    lines = ["| family | " + " | ".join(column.title for column in COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    lines += [f"| {name} | " + " | ".join(column.cell(name) for column in COLUMNS) + " |" for name in sorted(FAMILIES)]
    return "\n".join(lines) + "\n"


def page_table() -> str:
    """The table in the page."""
    return PAGE.read_text(encoding="utf-8").split(_FROM)[1].split(_TO)[0]


def main() -> None:
    """Replace the table in the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(_FROM + page_table(), _FROM + table()), encoding="utf-8")


if __name__ == "__main__":
    main()
