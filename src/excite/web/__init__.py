"""`excite serve`: a ``page`` and the HTTP interface (``api``) over one ``service``, behind one ``guard``."""
