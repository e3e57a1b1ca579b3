"""What the tests of the stage predict share."""

import json

from biosqueeze.stages import predict


def options_of(checkpoint, source, **changes):
    return predict.Options(checkpoint=str(checkpoint), input=str(source), **changes)


def predicted(checkpoint, source, **changes):
    """The predictions of a run that streams."""
    lines = "".join(predict.run(options_of(checkpoint, source, **changes)).lines).splitlines()
    return [json.loads(line) for line in lines]


def write_records(path, *records):
    """Write one line for each record: a text as it is, or an object as JSON."""
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records))
    return path
