"""Named shapes and students, and the models that are built from them."""
