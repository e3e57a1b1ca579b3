"""Teacher outputs computed once and stored on disk for later epochs and students."""
