"""What tools give back, kept outside the context: a budget, a store, and handles to read from it.

``filter`` lets small outputs pass and cuts large ones to an excerpt (``excerpt``) that keeps their
beginning, their end and what tells of failures (``evidence``). The full text goes to the ``store``
under a handle, which ``reading`` reads and searches later.
"""
