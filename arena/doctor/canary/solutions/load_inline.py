# verdict: passed
# CUDA C++ that torch builds with nvcc, ninja and the host's compiler at import.

from torch import Tensor
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void twice(const float* x, float* y, long n) {
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

void doubled(const at::Tensor& x, const at::Tensor& y) {
    const long n = x.numel();
    twice<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""
built = load_inline("doubled", "void doubled(const at::Tensor& x, const at::Tensor& y);", SOURCE, functions=["doubled"])


def solution(x: Tensor, y: Tensor) -> None:
    built.doubled(x, y)
