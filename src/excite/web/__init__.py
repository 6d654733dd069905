"""`excite serve`: a page in the browser, and the HTTP interface beside it.

* ``uploads``: the limits, and the images that were sent, kept in memory only,
* ``service``: the queries, without HTTP and without a page,
* ``api``, ``schemas``, ``answers``, ``api_docs``: the HTTP interface for programs,
* ``page``, ``reports``, ``assets``: the page; its template, script and style are in ``assets/``,
* ``guard``, ``errors``, ``log``: access, limits, errors and the log of everything that is served,
* ``server``: start and stop.
"""
