"""Keeps a prompt's cache entry alive while an agent pauses, where that is worth its price.

``settings`` is what users set; ``economy`` and ``gaps`` hold prices and what pauses teach;
``policy`` decides, without clock or network; ``replay`` makes the request that is sent; ``keeper``
holds one series of refreshes a lane and is driven by ``timer``; ``realised`` says afterwards, from
recorded calls alone, what it brought.
"""
