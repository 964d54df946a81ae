"""Finds, recognises and reads recorded sessions."""
