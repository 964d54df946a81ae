"""Text to token ids and back. Loads no numeric library."""
