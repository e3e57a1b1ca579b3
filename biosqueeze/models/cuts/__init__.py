"""Cut a model: depth, width and vocabulary, and the repair of what is left."""
