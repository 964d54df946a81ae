"""A proxy on this machine that records what an agent in any language sends and receives.

``routes`` tells where a request goes, ``relay`` hands it on and records it, ``server`` listens.
Bodies are passed on as they are, in both directions, compressed or not, piece by piece.
"""
