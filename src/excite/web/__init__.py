"""The page: `excite serve`, and the HTTP interface beside it.

* ``limits``: how much anybody may ask for,
* ``desk``: the images that people have sent, kept in memory only,
* ``gate``: how many are served at once, and how many may wait,
* ``service``: what can be asked; knows nothing of HTTP or of pages,
* ``telling``: what maps and phrases say, for programs and for people alike,
* ``api``: the same for programs, over HTTP,
* ``guard``: who may ask, and what is never served,
* ``page`` and its parts: the same for people, with gradio,
* ``server``: starts and stops it.
"""
