"""Dated prices, rate cards and exact costs."""
