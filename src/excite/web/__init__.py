"""`excite serve`: a page in the browser, and the HTTP interface beside it.

* ``uploads``: the limits, and the images that were sent, kept in memory only,
* ``service``: the queries, without HTTP and without a page,
* ``api``, ``answers``: the HTTP interface for programs, and its description,
* ``page``, ``reports``, ``assets``: the page; its template, script and style are in ``assets/``,
* ``guard``, ``errors``: access, limits, errors and the log of everything that is served,
* ``server``: start and stop.
"""
