"""What do learners read when an input cannot be used? One sentence, carried by one exception."""


class CourseError(ValueError):
    """Bad input, told in one sentence: what was wrong, what is accepted, what to do.

    The command line prints the sentence and ends with status 2; a lab shows it in place of its picture.
    Neither shows a traceback, so the sentence must stand alone.
    """
