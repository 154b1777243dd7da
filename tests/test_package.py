"""Is importing the package cheap, so that every command and every child process starts fast?"""

import importlib.util
import pkgutil
import subprocess
import sys

import pytest

import course_lib

HEAVY = ("torch", "torchvision", "numpy", "matplotlib", "IPython", "ipywidgets", "click")
GROUND = ("cgroup", "claims", "errors", "files", "gpu_driver", "machine", "units")


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh Python has loaded after this statement."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_after("import course_lib").isdisjoint(HEAVY)


def test_importing_the_package_imports_nothing_but_itself() -> None:
    """What an import costs is what it imports: the package adds itself, and no module of anybody else."""
    added = modules_after("import course_lib") - modules_after("pass")
    assert added == {"course_lib"}


@pytest.mark.parametrize("name", GROUND)
def test_the_ground_floor_imports_no_torch(name: str) -> None:
    assert modules_after(f"import course_lib.{name}").isdisjoint(HEAVY)


@pytest.mark.parametrize("name", ["teach", "teach.verdicts", "teach.doctor.report", "cli.main", "cli.doctor"])
def test_what_a_command_starts_with_imports_no_torch(name: str) -> None:
    assert "torch" not in modules_after(f"import course_lib.{name}")


def test_every_module_says_what_it_is_for() -> None:
    names = [
        m.name for m in pkgutil.walk_packages(course_lib.__path__, "course_lib.") if "__main__" not in m.name
    ]
    assert len(names) > 10
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert spec.loader is not None
        source = spec.loader.get_source(name)  # type: ignore[attr-defined]
        assert source.lstrip().startswith('"""'), f"{name} has no docstring"


def test_the_package_is_marked_as_typed() -> None:
    assert any("py.typed" in str(path) for path in _files())


def _files() -> list[str]:
    import importlib.metadata

    from course_lib.files import checkout_root

    root = checkout_root()
    if root is not None:
        return [str(path) for path in (root / "course_lib").iterdir()]
    return [str(path) for path in importlib.metadata.files("efficient-training-course") or []]
