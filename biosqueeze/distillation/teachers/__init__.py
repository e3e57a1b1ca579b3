"""Teachers: their heads and vocabularies made those of the student, and the source of their outputs."""
