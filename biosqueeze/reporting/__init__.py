"""One HTML page about a checkpoint: what is known of it, its curves drawn, and the page around them."""

FILE_NAME = "report.html"
