"""Replaces a conversation by its summary where that is worth its price, and keeps what must stay.

``history`` knows where a conversation may be cut, ``request`` asks for the summary, ``rewrite``
puts the new history together from it and from what is ``kept``; ``clearing`` empties old tool
results instead. ``economy`` prices each way in three stages, ``decide`` chooses, and ``compactor``
does it for a running loop. Originals stay readable (``originals``).
"""
