"""Train faster without a bigger card: the tested library behind the course.

Importing this package imports nothing heavy; each part is imported by its own name, as in
``from course_lib.train.timing import StepTimer``.
"""

__version__ = "0.1.0"
