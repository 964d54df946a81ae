"""Implementations on torch tensors; torch is imported by the caller, never from here."""
