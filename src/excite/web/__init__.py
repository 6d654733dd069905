"""`excite serve`: a page in the browser, and the HTTP interface beside it.

* ``service``: the images that were sent, kept in memory only, and the queries about them, without HTTP,
* ``api``, ``answers``: the HTTP interface for programs, and its description,
* ``page``, ``files``: the page and what is served from files; see ``assets/`` and ``templates/``,
* ``guard``, ``errors``: access, limits, errors and the log of everything that is served,
* ``server``: start and stop.
"""
