"""Scripts in place of single calls: only what a script says enters the conversation.

The model writes Python and a sandbox runs it. ``codemode`` is the tool; ``sandbox`` drives the
interpreter, a process of its own, in which ``functions`` make tools and helpers callable; ``stubs``
tells their types, so that mistakes are found before anything runs; ``catalog`` is what the model is
told of it all.
"""
