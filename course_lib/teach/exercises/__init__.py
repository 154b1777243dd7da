"""Exercises: one module a lesson, named by the lesson's topic word, and the few modules that run them.

A lesson's module (``start.py`` is the one to copy) exports ``EXERCISES``, a tuple of ``Exercise``. It needs
no entry elsewhere: ``check("start.throughput", answer)`` finds ``start.py`` by the word before the dot, and
the tests run the right and the wrong answers of every module they find here.

The others, in the order in which an answer passes through them:

- ``checking``: ``check``, ``hint`` and ``solution``, as a lesson calls them
- ``registry``: from an id to its exercise
- ``exercise``: what an exercise is
- ``checkers``, ``cases``, ``values``: the words in which a check is written
- ``proved_step``, ``first_step``: the check of a whole training step, and what comes before its time
- ``guard``, ``time_limit``: the learner's function, run safely
- ``result``, ``panel``: what the learner sees
- ``progress``: what is kept
"""
