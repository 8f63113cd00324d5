"""Builds the compiled loops of the recurrent ops; without a compiler the package installs all the same.

The environment variable HF_METALSTM_KERNELS says what is wanted: "auto" (the default) builds them if it can, "require"
fails if it cannot, "skip" does not try. HF_METALSTM_SANITIZE=1 builds with the address and undefined-behaviour
sanitizers.
"""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

FOLDER = "csrc"
# On macOS, what to build for may differ from what this machine is.
X86 = platform.machine().lower() in ("x86_64", "amd64") and "arm64" not in os.environ.get("ARCHFLAGS", "")
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-Og"]
# One file for each instruction set, with flags that no other file may have: the processor is asked at run time.
FLAGS_OF_FILE = {
    "kernels_avx2.cpp": ["-mavx2", "-mfma"],
    "kernels_avx512.cpp": [
        "-mavx512f",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx512bw",
        "-mfma",
        "-mprefer-vector-width=512",
    ],
}
# The stable ABI of Python 3.10: one binary serves every later version.
PYTHON_API = "0x030A0000"


def kernels() -> list[Extension]:
    """The extension modules to build here."""
    if os.environ.get("HF_METALSTM_KERNELS") == "skip":
        return []
    files = ["module.cpp", "kernels_baseline.cpp", *(FLAGS_OF_FILE if X86 else [])]
    macros = [("Py_LIMITED_API", PYTHON_API), *([("HF_METALSTM_X86", "1")] if X86 else [])]
    sources = [f"{FOLDER}/{name}" for name in files]
    return [Extension("hf_metalstm._kernels", sources, define_macros=macros, language="c++", py_limited_api=True)]


class BuildKernels(build_ext):
    """Compiles each file with its own flags, all at once, and goes on without them if that fails."""

    built = False

    def build_extension(self, ext: Extension) -> None:
        try:
            if self.compiler.compiler_type != "unix":
                raise PlatformError(f"they need GCC or Clang, not a compiler of type {self.compiler.compiler_type!r}")
            self._compile(ext)
            self.built = True
        except (CCompilerError, ExecError, PlatformError, OSError) as error:
            if os.environ.get("HF_METALSTM_KERNELS") == "require":
                raise
            print(
                f"\nhf_metalstm: the compiled kernels were not built ({error}).\n"
                "hf_metalstm: the recurrent ops will run in pure PyTorch, with the same results but slower. Install a\n"
                "hf_metalstm: C++17 compiler (GCC or Clang) and install the package again to have them.\n",
                file=sys.stderr,
            )

    def _compile(self, ext: Extension) -> None:
        sanitized = os.environ.get("HF_METALSTM_SANITIZE") == "1"

        def compile_one(source: str) -> list[str]:
            flags = [*FLAGS, *FLAGS_OF_FILE.get(Path(source).name, []), *(SANITIZE if sanitized else [])]
            return self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                extra_postargs=flags,
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(compile_one, ext.sources) for name in names]
        target = self.get_ext_fullpath(ext.name)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(
            objects,
            target,
            extra_postargs=["-pthread", *(SANITIZE if sanitized else [])],
            target_lang="c++",
        )

    def copy_extensions_to_source(self) -> None:
        """Part of an editable install; there is nothing to copy if nothing was built."""
        if self.built:
            super().copy_extensions_to_source()

    def get_outputs(self) -> list[str]:
        return super().get_outputs() if self.built else []

    def get_output_mapping(self) -> dict[str, str]:
        return super().get_output_mapping() if self.built else {}
