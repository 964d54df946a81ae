"""Records what an agent sends and receives, without touching either.

The way of a call: a hook (``middleware``, ``transport``) opens an ``Attempt``, lets the request
through and notes what came back (``capture``, ``tee``); the attempt is handed to the ``recorder``,
whose thread makes a call of it (``maker``) and writes it to the store (``ledger``). Nothing that
goes wrong on the way reaches the caller: it is counted (``faults``).
"""
