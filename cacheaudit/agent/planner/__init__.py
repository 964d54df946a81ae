"""Decides where a request is marked, for how long, and why.

The way of a request: ``layout`` cuts it into content blocks and takes over what it repeats;
``memory`` knows the session and the line of conversation that it belongs to; ``spots`` names the
places worth marking; ``lifetime`` chooses how long each is kept, from the pauses that ``gaps`` has
seen; ``forecast`` plays the choice through the rules of the cache, so that ``account`` can refuse
what the session cannot afford; ``apply`` writes the markers into a copy. ``notes`` keeps what was
done for the report.
"""
