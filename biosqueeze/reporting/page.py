"""Render the report: page.html.j2 filled with the texts and plots of a checkpoint. Expressions are escaped."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from biosqueeze.reporting import GENERATOR
from biosqueeze.reporting.measurements import bench_table, evaluation_table, tradeoff_panels
from biosqueeze.reporting.overview import describe_checkpoint, describe_stage, describe_training, footer_text
from biosqueeze.reporting.plots import tradeoff_plot
from biosqueeze.reporting.report_data import ReportData


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)


def render(data: ReportData) -> str:
    """Return the whole page, which refers to nothing outside of it."""
    panels = tradeoff_panels(data.evaluations, data.bench)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            generator=Markup(GENERATOR),
            data=data,
            overview=describe_checkpoint(data),
            stages=[describe_stage(entry) for entry in data.checkpoint.history],
            trainings=[describe_training(training) for training in reversed(data.trainings)],
            tradeoff=tradeoff_plot(panels) if panels else None,
            evaluations=evaluation_table(data.evaluations),
            bench=bench_table(data.bench),
            footer=footer_text(data),
        )
    )
