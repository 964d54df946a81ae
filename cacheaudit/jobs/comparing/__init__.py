"""Comparison of the same tasks before and after: gathering, pairing, intervals, outcomes."""
