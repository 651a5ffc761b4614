# verdict: passed
# Honest: CUDA compiled at import and launched on torch's current stream. A block per query head, a warp per token.
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>

constexpr int WARPS = 16;

// Lane i has elements i * E to i * E + E - 1 of a row of D = 32 * E.
template <int E> struct alignas(2 * E) Row { __nv_bfloat16 at[E]; };

template <int E>
__global__ void attend(const Row<E>* q, const Row<E>* kv, const int* table, const int* lens, Row<E>* out,
                       int Hq, int Hkv, int page, int columns) {
    const int b = blockIdx.x / Hq, head = blockIdx.x % Hq, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int length = lens[b];
    const long token = 32L * Hkv, mine = 32L * (head / (Hq / Hkv)) + lane;
    const Row<E> query = q[32L * blockIdx.x + lane];
    const float scale = rsqrtf(32.0f * E);
    float top = -INFINITY, mass = 0, acc[E] = {};
    for (int t = warp; t < length; t += WARPS) {
        const Row<E>* row = kv + (2L * page * table[(long)b * columns + t / page] + t % page) * token + mine;
        const Row<E> k = row[0], v = row[page * token];
        float s = 0;
        for (int e = 0; e < E; e++) s += __bfloat162float(query.at[e]) * __bfloat162float(k.at[e]);
        for (int by = 16; by; by /= 2) s += __shfl_xor_sync(0xffffffff, s, by);
        s *= scale;
        const float most = fmaxf(top, s), keep = __expf(top - most), p = __expf(s - most);
        mass = mass * keep + p;
        for (int e = 0; e < E; e++) acc[e] = acc[e] * keep + p * __bfloat162float(v.at[e]);
        top = most;
    }
    __shared__ float tops[WARPS], masses[WARPS], sums[WARPS][32 * E];
    if (lane == 0) tops[warp] = top, masses[warp] = mass;
    for (int e = 0; e < E; e++) sums[warp][lane * E + e] = acc[e];
    __syncthreads();
    if (warp) return;
    float most = -INFINITY, total = 0, joined[E] = {};
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, tops[w]);
    for (int w = 0; w < WARPS; w++) {
        const float share = __expf(tops[w] - most);
        total += share * masses[w];
        for (int e = 0; e < E; e++) joined[e] += share * sums[w][lane * E + e];
    }
    Row<E> answer;
    for (int e = 0; e < E; e++) answer.at[e] = __float2bfloat16(joined[e] / total);
    out[32L * blockIdx.x + lane] = answer;
}

template <int E>
void launch(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& table, const at::Tensor& lens,
            const at::Tensor& out) {
    attend<E><<<q.size(0) * q.size(1), 32 * WARPS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        (const Row<E>*)q.data_ptr(), (const Row<E>*)kv.data_ptr(), table.data_ptr<int>(), lens.data_ptr<int>(),
        (Row<E>*)out.data_ptr(), q.size(1), kv.size(3), kv.size(2), table.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void paged(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& table, const at::Tensor& lens, const at::Tensor& out) {
    switch (q.size(2)) {
        case 32: launch<1>(q, kv, table, lens, out); break;
        case 64: launch<2>(q, kv, table, lens, out); break;
        case 128: launch<4>(q, kv, table, lens, out); break;
        default: TORCH_CHECK(false, "head size ", q.size(2), ": this kernel knows 32, 64 and 128");
    }
}
"""
DECLARED = "void paged(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&);"
paged = load_inline("paged", DECLARED, SOURCE, functions=["paged"], extra_cuda_cflags=["-O3"]).paged


def solution(q, kv, block_table, seq_lens, out):
    with torch.no_grad():
        paged(q, kv, block_table, seq_lens, out)
