"""The benchmark suites of the papers, and the statistics of a data set."""
