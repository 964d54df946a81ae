"""Keeps KV of prompts in pages, and finds it again. Loads no numeric library."""
