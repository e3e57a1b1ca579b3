"""The benchmark suites of the papers, and the counts and statistics of data sets."""
