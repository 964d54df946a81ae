"""Replay of recorded calls against an engine: plan, requests, backend, comparison."""
