"""A long run of the local server with all that goes wrong in practice, and its books after."""
