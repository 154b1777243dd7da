"""What does a publisher type? ``course links`` writes the badges and the hosted lessons for a repository."""

import click

from course_lib.errors import CourseError


@click.command(epilog="Example: course links --repo ada/training-course")
@click.option("--repo", metavar="OWNER/NAME", help="The repository on GitHub, as in its address.")
@click.option("--branch", metavar="BRANCH", help="The branch that learners open; main by default.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a link is missing or dead.")
def links(repo: str | None, branch: str | None, check: bool) -> int:
    """Make the course open on Binder, Colab and Kaggle.

    For whoever publishes or forks it on GitHub. Writes the badges into README.md, the links into the lessons,
    and the edition for Colab and Kaggle into notebooks/hosted. Commit and push what was written.
    """
    from course_lib.teach.links import Repository
    from course_lib.teach.publish import check_links, write_links

    if repo is None and (branch is not None or not check):
        raise CourseError("Say which repository: course links --repo OWNER/NAME")
    repository = None
    if repo is not None:
        repository = Repository(repo) if branch is None else Repository(repo, branch)
    if check:
        report = check_links(repository)
    else:
        assert repository is not None
        report = write_links(repository)
    click.echo(report)
    return 1 if report.problems else 0
