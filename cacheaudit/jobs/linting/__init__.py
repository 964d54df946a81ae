"""Checks of a request body before it is sent: markers, sizes, positions, text that moves."""
