"""From the files of a data set to examples."""
