"""A process that compiles Triton kernels into Triton's cache on disk, for one that waits: see `compiling.py`.

It is run by its path and imports neither burn_torch nor torch, which take seconds.  It reads a line of JSON for each
kernel and answers each with one: what was asked for is there, or why not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burn_torch.ops.value import Primitive

__all__ = ["compiled", "source_of"]


def main() -> None:
    """Answers until there is nothing more to read."""
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = compiled(job)
        except Exception as fault:  # whoever waits compiles it then, and words what is wrong
            answer = f"{type(fault).__name__}: {fault}"
        print(json.dumps({"why_not": answer}), file=sys.__stdout__, flush=True)


def compiled(job: dict[str, Any]) -> str:
    """Compiles a kernel, and the function of C that launches it; empty, or why nothing was compiled."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime import cache

    cache.triton_key = lambda: job["triton"]  # of hundreds of megabytes, which were read already
    _package(job["kernels"])
    function = _function(job["path"], job["module"], job["name"])
    target = GPUTarget(*job["target"])
    source, options = source_of(function, json.loads(job["specialization"]), make_backend(target))
    if hash_of(source, target, options) != job["hash"]:
        return "this process would compile another kernel"
    kernel = triton.compile(source, target=target, options=options.__dict__)
    if target.backend == "cuda":
        from triton.backends.nvidia.driver import CudaLauncher

        with contextlib.suppress(Exception):  # nothing but time is lost without it
            CudaLauncher(kernel.src, kernel.metadata)
    return ""


def source_of(function: Any, special: dict[str, Any], backend: Any) -> tuple[Any, Any]:
    """Returns the source that Triton compiles, with options, from what its hooks get; as `JITFunction.preload` does."""
    import triton.language as tl
    from triton.compiler import ASTSource

    def constant(value: object) -> Primitive:
        if isinstance(value, dict) and "constexpr" in value:
            return tl.constexpr(value["constexpr"])
        return tl.dtype(value) if tl.dtype.is_dtype(value) else value

    constants = {tuple(key): constant(value)
                 for key, value in zip(special["constant_keys"], special["constant_vals"], strict=True)}  # fmt: skip
    attributes = dict(zip(map(tuple, special["attrs_keys"]), special["attrs_vals"], strict=True))
    signature = {name: _tuples(value) for name, value in special["signature"].items()}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in special["options"].items()}
    return ASTSource(function, signature, constants, attributes), backend.parse_options(options)


def hash_of(source: Any, target: object, options: object) -> str:
    """The name under which Triton's cache keeps a kernel."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.compiler import make_backend
    from triton.runtime.cache import get_cache_key

    from burn_kernels.jitted import settle

    settle(source.fn)
    key: str = get_cache_key(source, make_backend(target), options, get_cache_invalidating_env_vars())
    return hashlib.sha256(key.encode()).hexdigest()


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _package(folder: str) -> None:
    """`burn_kernels` without what its own `__init__` imports: files of it that kernels share are imported alone."""
    if "burn_kernels" not in sys.modules:
        package = types.ModuleType("burn_kernels")
        package.__path__ = [folder]
        sys.modules["burn_kernels"] = package


def _function(path: str, module: str, name: str) -> object:
    if module not in sys.modules:
        namespace = sys.modules[module] = types.ModuleType(module)
        namespace.__file__ = path
        exec(compile(Path(path).read_bytes(), path, "exec"), vars(namespace))  # bytecode in the cache could be damaged
    return getattr(sys.modules[module], name)


if __name__ == "__main__":
    main()
