"""Programs that run one engine each in the same protocol; see ``test_engine_peers.py``."""
