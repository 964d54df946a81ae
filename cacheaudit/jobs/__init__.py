"""The work behind each command, free of terminals and arguments."""
