"""A directory of tools that never changes what stands at the beginning of a prompt.

``schemas`` makes tools of functions, models, JSON schemas; ``mcp`` takes them from servers. The
``directory`` holds and searches them (``search``) and opens a ``session``, whose declarations are
fixed from its first request on (``exposure``, ``native``); ``drift`` names what would change them.
``call_tool`` carries a call out: shown, permitted, valid, in time, cut to the output budget.
"""
