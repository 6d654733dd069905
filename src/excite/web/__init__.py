"""`excite serve`: a page (``page``) and the HTTP interface (``api``, ``answers``) over the same ``service``.

``guard`` and ``errors`` hold access, limits, errors and the log of everything that is served; ``server`` runs it.
"""
