"""``python -m course_lib`` is the same as ``course``: for where the scripts are not on the PATH."""

from course_lib.cli.main import main

if __name__ == "__main__":
    main()
