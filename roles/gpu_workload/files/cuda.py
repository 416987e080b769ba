"""The part of the CUDA driver API that the scripts beside this file need, through ctypes: no package to install."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

# Kernels in PTX for Maxwell, the oldest supported generation. The driver compiles it for any later one, too.
# `spin` occupies the GPU for the given number of nanoseconds.
PTX = b"""
.version 4.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %again;
    .reg .b64 %time<3>;
    ld.param.u64 %time1, [nanoseconds];
    mov.u64 %time2, %globaltimer;
    add.u64 %time1, %time1, %time2;
wait:
    mov.u64 %time2, %globaltimer;
    setp.lt.u64 %again, %time2, %time1;
    @%again bra wait;
    ret;
}

.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %r<4>;
    .reg .b64 %at<5>;
    .reg .f32 %f<3>;
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r0, %tid.x;
    mad.lo.u32 %r0, %r2, %r3, %r0;
    setp.ge.u32 %outside, %r0, %r1;
    @%outside ret;
    ld.param.u64 %at1, [a];
    ld.param.u64 %at2, [b];
    ld.param.u64 %at3, [sum];
    mul.wide.u32 %at4, %r0, 4;
    add.u64 %at1, %at1, %at4;
    add.u64 %at2, %at2, %at4;
    add.u64 %at3, %at3, %at4;
    ld.global.f32 %f1, [%at1];
    ld.global.f32 %f2, [%at2];
    add.f32 %f1, %f1, %f2;
    st.global.f32 [%at3], %f1;
    ret;
}
\0"""


class CudaError(Exception):
    """A call of the driver failed: its name, and CUDA's name of the error.

    function, code: the call and CUDA's number of the error; empty and 0 where the library is missing.
    """

    def __init__(self, text: str, function: str = "", code: int = 0) -> None:
        super().__init__(text)
        self.function, self.code = function, code


class Driver:
    """The library of the driver, initialized. Raises CudaError if there is no driver or no GPU."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as missing:
            raise CudaError(f"no CUDA driver here ({missing}); does the pod have NVIDIA's RuntimeClass?") from None
        self._call("cuInit", 0)

    def count(self) -> int:
        """The number of GPUs that this container was given."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def _call(self, function: str, *arguments: Any) -> None:
        if result := getattr(self._cuda, function)(*arguments):
            name = ctypes.c_char_p()
            self._cuda.cuGetErrorName(result, ctypes.byref(name))
            text = (name.value or b"error %d" % result).decode()
            raise CudaError(f"{function}: {text}", function, result)


class Gpu(Driver):
    """One GPU that this container was given, by default the first, with our kernels loaded.

    Raises CudaError if there is no driver or no GPU.
    """

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        device = ctypes.c_int()
        self._context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        name, identity = ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceGetUuid", identity, device)
        self.name = name.value.decode()
        self.uuid = f"GPU-{uuid.UUID(bytes=bytes(identity))}"
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.use()
        self._call("cuModuleLoadData", ctypes.byref(module), PTX)
        self._functions = {kernel: ctypes.c_void_p() for kernel in (b"spin", b"vector_add")}
        for kernel, function in self._functions.items():
            self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel)

    def use(self) -> None:
        """Use this GPU in the calling thread. Each thread must call it once."""
        self._call("cuCtxSetCurrent", self._context)

    def spin(self, milliseconds: float) -> None:
        """Keep the GPU busy for so long, and wait for the end."""
        self._launch(b"spin", 1, 1, ctypes.c_uint64(round(milliseconds * 1e6)))

    def add(self, a: list[float], b: list[float]) -> list[float]:
        """The sums of two vectors of one length, as 32-bit floats computed by the GPU."""
        vector = ctypes.c_float * len(a)
        size, host = ctypes.sizeof(vector), vector()
        pointers = [ctypes.c_uint64() for _pointer in range(3)]
        for pointer in pointers:
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        for pointer, values in zip(pointers, (a, b), strict=False):
            self._call("cuMemcpyHtoD_v2", pointer, vector(*values), ctypes.c_size_t(size))
        self._launch(b"vector_add", -(-len(a) // 256), 256, *pointers, ctypes.c_uint32(len(a)))
        self._call("cuMemcpyDtoH_v2", host, pointers[2], ctypes.c_size_t(size))
        for pointer in pointers:
            self._call("cuMemFree_v2", pointer)
        return list(host)

    def _launch(self, kernel: bytes, blocks: int, threads: int, *arguments: Any) -> None:
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self._call("cuLaunchKernel", self._functions[kernel], blocks, 1, 1, threads, 1, 1, 0, None, addresses, None)
        self._call("cuCtxSynchronize")
