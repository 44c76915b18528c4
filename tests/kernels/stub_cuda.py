"""A CUDA driver that launches nothing and tells what it was told to: Triton compiles, loads and launches as on an H200.

The library is built from the C source below and stands in for libcuda in this process, so all of the path of a launch
runs, Triton's C function included, up to the call that would reach a GPU.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import torch

__all__ = ["Launched", "StubCuda", "standing_in"]

SOURCE: Final = """
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
static unsigned long long words[64];
static unsigned shape[5];
static void *who[2];
static int count = 0;
static long calls = 0;
void stub_expect(int arguments) { count = arguments; }
unsigned long long *stub_words(void) { return words; }
unsigned *stub_shape(void) { return shape; }
void **stub_who(void) { return who; }
long stub_calls(void) { return calls; }
#define MOST 32
static unsigned long long row[MOST][70];
static int launched = 0;
unsigned long long *stub_row(void) { return &row[0][0]; }
void stub_begin(void) { launched = 0; }
int stub_launched(void) { return launched; }
static void note(void) { /* what is launched, in a row: arguments, shape, function and stream */
  unsigned long long *at = row[launched++ % MOST];
  memcpy(at, words, sizeof words);
  for (int i = 0; i < 4; i++) at[64 + i] = shape[i];
  at[68] = (unsigned long long)who[0]; at[69] = (unsigned long long)who[1];
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **arguments, void **extra) {
  calls++;
  shape[0] = c->gridDimX; shape[1] = c->gridDimY; shape[2] = c->gridDimZ;
  shape[3] = c->blockDimX; shape[4] = c->sharedMemBytes;
  who[0] = (void *)f; who[1] = (void *)c->hStream;
  for (int i = 0; i < count; i++) memcpy(&words[i], arguments[i], 8);
  note();
  return CUDA_SUCCESS;
}
/* graphs of kernels, one after the other */
struct node { CUDA_KERNEL_NODE_PARAMS_v2 how; unsigned long long words[64]; };
struct graph { int size; struct node nodes[MOST]; };
static int refused = 0;
void stub_refuse(int what) { refused = what; }
static void take(struct node *n, const CUDA_KERNEL_NODE_PARAMS_v2 *p) {
  n->how = *p;
  for (int i = 0; i < count; i++) memcpy(&n->words[i], p->kernelParams[i], 8);
}
CUresult cuGraphCreate(CUgraph *g, unsigned flags) {
  *g = (CUgraph)calloc(1, sizeof(struct graph));
  return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode *n, CUgraph g, const CUgraphNode *before, size_t many,
                                 const CUDA_KERNEL_NODE_PARAMS_v2 *p) {
  struct graph *graph = (struct graph *)g;
  CUgraphNode last = (CUgraphNode)&graph->nodes[graph->size - 1];
  if ((graph->size ? 1 : 0) != (int)many || (many && *before != last)) return CUDA_ERROR_INVALID_VALUE;
  struct node *made = &graph->nodes[graph->size++];
  take(made, p);
  *n = (CUgraphNode)made;
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags) {
  *e = (CUgraphExec)g;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec e, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v2 *p) {
  if (refused) return CUDA_ERROR_INVALID_VALUE;
  take((struct node *)n, p);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec e, CUstream stream) {
  struct graph *graph = (struct graph *)e;
  for (int k = 0; k < graph->size; k++) {
    struct node *n = &graph->nodes[k];
    shape[0] = n->how.gridDimX; shape[1] = n->how.gridDimY; shape[2] = n->how.gridDimZ;
    shape[3] = n->how.blockDimX; shape[4] = n->how.sharedMemBytes;
    who[0] = (void *)n->how.func; who[1] = (void *)stream;
    memcpy(words, n->words, sizeof n->words);
    note();
  }
  calls++;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec e) { return CUDA_SUCCESS; }
CUresult cuGraphDestroy(CUgraph g) { free(g); return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = i; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p) {
  *(CUdeviceptr *)out = p;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult r, const char **text) { *text = "stub"; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return CUDA_SUCCESS; }
"""

STREAM: Final = 77


@dataclass(frozen=True)
class Launched:
    """A launch that the driver got: programs, threads, shared bytes; function and stream; arguments as 8-byte words."""

    shape: tuple[int, ...]
    who: tuple[int, ...]
    words: tuple[int, ...]


class StubCuda:
    """The driver as Triton sees it, and what was launched last."""

    def __init__(self, library: Any) -> None:
        from triton.backends.nvidia.driver import CudaLauncher

        self.library, self.launcher_cls, self.utils = library, CudaLauncher, self
        for name, kind in (
            ("words", ctypes.c_ulonglong),
            ("row", ctypes.c_ulonglong),
            ("shape", ctypes.c_uint),
            ("who", ctypes.c_void_p),
        ):
            getattr(library, f"stub_{name}").restype = ctypes.POINTER(kind)

    # -- what Triton asks
    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return STREAM

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232_448, "warpSize": 32}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        return 1, 0x1234, 32, 0, 1024

    # -- what tests ask
    @property
    def calls(self) -> int:
        return int(self.library.stub_calls())

    def expect(self, arguments: int) -> None:
        """Sets the number of arguments that the driver notes from now on."""
        self.library.stub_expect(arguments)
        ctypes.memset(self.library.stub_words(), 0, 512)

    def begin(self) -> None:
        """Launches are noted in a row from now on."""
        self.library.stub_begin()

    def row(self) -> list[tuple[int, ...]]:
        """The launches since then: 64 arguments as words, programs and threads, function and stream."""
        words = self.library.stub_row()
        return [tuple(words[70 * k : 70 * k + 70]) for k in range(self.library.stub_launched())]

    def refuse(self, wanted: bool) -> None:
        """Sets whether the driver refuses parameters of kernels in graphs."""
        self.library.stub_refuse(int(wanted))

    def last(self, sizes: list[int]) -> Launched:
        """The last launch, whose arguments have these sizes in bytes."""
        words = self.library.stub_words()
        words_of_sizes = tuple(words[i] & ((1 << 8 * size) - 1) for i, size in enumerate(sizes))
        return Launched(tuple(self.library.stub_shape()[:5]), tuple(self.library.stub_who()[:2]), words_of_sizes)


@cache
def _library() -> tuple[Path, Any]:
    """The stub's folder and the stub: one a process, since what Triton links against stays with it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    from triton import backends

    folder = Path(tempfile.mkdtemp(prefix="stub_cuda_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = folder / "stub.c", folder / "libcuda.so.1"
    source.write_text(SOURCE)
    include = Path(backends.__path__[0]) / "nvidia" / "include"
    command = [compiler, "-O1", "-shared", "-fPIC", f"-I{include}", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*command, str(source)], check=True)
    (folder / "libcuda.so").symlink_to(library)
    return folder, ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@contextmanager
def standing_in() -> Iterator[StubCuda]:
    """A block in which Triton launches on the stub.  Skips where there may be a GPU, hidden or not, or no compiler."""
    pytest.importorskip("triton")
    from triton.runtime import driver

    if torch.cuda.is_available() or torch.version.cuda is not None:
        pytest.skip("there is a driver, which a stub would be mistaken for")
    folder, library = _library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_LIBCUDA_PATH", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        active: Any = driver
        patch.setattr(active, "_active", StubCuda(library))
        yield active.active
