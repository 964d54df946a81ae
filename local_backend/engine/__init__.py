"""Runs a model over the KV cache: admission, batching, sampling, streams of tokens."""
