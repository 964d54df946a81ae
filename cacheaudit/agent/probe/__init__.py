"""Measures with at most four requests whether an endpoint reuses a prefix.

``requests`` makes the four bodies, ``http`` sends one of them with nothing but the standard
library, ``run`` sends one after another and stops where going on would tell nothing, ``conclude``
says what the figures allow to say, ``price`` what it will cost at most.
"""
