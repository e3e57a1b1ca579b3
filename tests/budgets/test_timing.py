"""Times that other work on the machine disturbs are measured again and never stored; all times here are injected."""

import json

import pytest

from biosqueeze.budgets import timing
from biosqueeze.budgets.latency import measured_shapes
from biosqueeze.budgets.plausibility import TimedModel, contradiction
from biosqueeze.budgets.shapes import Shape, shapes_of
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.measuring.session import MeasuredModel
from tests import pico

QUIET = (2.2, 1.5, 0.94, 0.78, 2.1, 0.44, 0.9)
DISTURBED = (9.9, *QUIET[1:])
LATER = (2.3, 1.6, 0.94, 5.0, 2.1, 0.44, 0.9)


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Measure with injected times, one row for each attempt; return the request and the rows that are left."""
    monkeypatch.setenv("BIOSQUEEZE_CACHE", str(tmp_path / "cache"))
    rows = []

    def inject(models, settings):
        times, waited = rows.pop(0)
        for model, milliseconds in zip(models, times, strict=True):
            model.milliseconds.setdefault(settings.shapes[0], []).append(milliseconds)
            model.seconds, model.waited_seconds = 10.0, waited

    monkeypatch.setattr(timing, "measure_models", inject)
    monkeypatch.setattr(timing.TimingRequest, "_write", lambda *_: MeasuredModel(Checkpoint(tmp_path, "one"), "torch"))
    config = pico.config_of("bert", 50)
    request = timing.TimingRequest(
        config=config,
        original=config,
        architecture=pico.class_of("bert", "token-classification"),
        shapes=measured_shapes(shapes_of(config, narrows=True)),
        spec="torch",
        batch=1,
        length=16,
        threads=1,
    )

    def run(*attempts, waited=(0.0, 0.0, 0.0, 0.0)):
        rows[:] = zip(attempts, waited, strict=False)
        return request.measure()

    return request, run, rows


def stored(request):
    return json.loads((request._folder() / "latency.json").read_text())["milliseconds"]


def test_plausible_times_are_measured_once(measure):
    request, run, rows = measure
    assert run(QUIET, DISTURBED).predict(Shape(4, 4, 16)) == pytest.approx(2.1)
    assert len(rows) == 1 and stored(request) == list(QUIET)


def test_disturbed_times_are_measured_again(measure, capsys):
    request, run, _ = measure
    table = run(DISTURBED, LATER)
    assert stored(request) == [2.3, *QUIET[1:]]
    assert table.predict(Shape(4, 4, 64)) / table.predict(Shape(4, 4, 16)) < 1.2
    assert "9.9 ms for 4 layers, 4 heads and 64 neurons, but 1.5 ms for 4 layers" in capsys.readouterr().err


def test_times_that_stay_implausible_are_not_stored(measure):
    request, run, rows = measure
    with pytest.raises(SqueezeError, match="other work on this machine"):
        run(DISTURBED, DISTURBED, DISTURBED, QUIET)
    assert len(rows) == 1 and request.cached() is None and not request._folder().exists()


def test_times_of_models_that_waited_are_measured_again(measure, capsys):
    request, run, _ = measure
    slower = [1.2 * ms for ms in QUIET]
    run(slower, QUIET, waited=(1.5, 0.5))
    assert stored(request) == list(QUIET)
    assert json.loads((request._folder() / "latency.json").read_text())["waited_share"] == 0.05
    assert "cannot be used: a model waited for a processor for 15% of the time" in capsys.readouterr().err


def test_times_of_models_that_always_waited_are_not_stored(measure):
    request, run, rows = measure
    with pytest.raises(SqueezeError, match=r"measured 3 times.*waited for a processor for 40% of the time.*--flops"):
        run(QUIET, QUIET, QUIET, QUIET, waited=(4.0, 4.0, 4.0, 0.0))
    assert len(rows) == 1 and not request._folder().exists()


@pytest.mark.parametrize(
    "content",
    [
        {"milliseconds": DISTURBED, "waited_share": 0.0},
        {"milliseconds": QUIET, "waited_share": 0.4},
        {"milliseconds": QUIET},
    ],
)
def test_doubtful_times_of_the_cache_are_measured_again(measure, content):
    request, run, _ = measure
    run(QUIET)
    (request._folder() / "latency.json").write_text(json.dumps(content))
    assert request.cached() is None
    run(QUIET)
    assert stored(request) == list(QUIET)


@pytest.mark.parametrize(
    ("whole", "part", "is_plausible"),
    [(2.0, 1.0, True), (3.9, 1.0, True), (4.1, 1.0, False), (0.8, 1.0, True), (0.7, 1.0, False)],
)
def test_times_are_compared_with_the_operations(whole, part, is_plausible):
    models = [TimedModel((4, 4, 16, 50), 100, part), TimedModel((4, 4, 64, 50), 200, whole)]
    assert (contradiction(models) is None) is is_plausible
    crossed = [TimedModel((2, 4, 64, 50), 100, 1.0), TimedModel((4, 2, 64, 50), 100, 9.0)]
    assert contradiction(crossed) is None
