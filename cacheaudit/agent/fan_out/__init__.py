"""Sends requests that share a prefix so that it is written once and read by all the others.

``layout`` finds what requests share and where to mark it; ``release`` says which may be sent when;
``send`` does it with threads or on an event loop; ``cells`` measures the four combinations of
marking and waiting.
"""
