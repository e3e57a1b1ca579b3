"""The teacher cache: outputs that are computed once and stored on disk, for later epochs and other students.

`plan` decides what is stored under which key and which items a run needs, `store` reads and writes the files, and
`fill` runs the teacher on the items that are missing.
"""
