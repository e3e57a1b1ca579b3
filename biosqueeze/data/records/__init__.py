"""Records of a data set or of a user's input, from tables, JSON lines and the Hub."""
