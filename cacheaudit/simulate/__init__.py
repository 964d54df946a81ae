"""Provider caches as deterministic machines, driven by dated rules."""
