"""One HTML page about a checkpoint: its facts, history, training curves and measurements."""

FILE_NAME = "report.html"
GENERATOR = '<meta name="generator" content="biosqueeze report">'
