# verdict: passed
# CUDA: one read of x. What reaches a running bound is listed, a full list is cut by counting, and a bitonic sort ends it.

import functools
import math

import torch
from torch import Tensor
from torch.utils.cpp_extension import load_inline

KERNEL = r"""
// An element and its place in one number: larger for a larger element, and among equal ones for an earlier place. 0 is none.
typedef unsigned long long Entry;
constexpr int THREADS = 256, WARPS = THREADS / 32, BINS = THREADS, HELD = 4;
constexpr unsigned ALL = 0xffffffff, KEY_OF_MINUS_INFINITY = 0x007fffff;

struct State {
    Entry limit;  // What is below it is not among the k largest.
    int count, bin, upto, above, bins[BINS], sums[WARPS];
    Entry ends[2][WARPS];
};

__device__ Entry entry_of(float value, int place) {
    const int bits = __float_as_int(value + 0.0f);  // -0 becomes 0
    return (Entry)(unsigned)(bits ^ (bits >> 31 | 0x80000000)) << 32 | (unsigned)~place;
}
__device__ float value_of(int key) { return __int_as_float(key < 0 ? key ^ 0x80000000 : ~key); }
__device__ unsigned place_of(Entry e) { return ~(unsigned)e; }
// What a thread's numbers from place `at` on must reach. One that equals the limit's does not where `at` is after the limit's
// place. In the tile of that place some do that are after it, too: the list may hold more than what reaches the limit.
__device__ void least_of(Entry limit, int at, float& least) {
    // Below -inf there are only bit patterns of NaN. Above +inf, too, and nothing reaches those.
    least = value_of(max((unsigned)(limit >> 32), KEY_OF_MINUS_INFINITY) + ((unsigned)at > place_of(limit)));
}
__device__ void nothing(float& value) { value = -INFINITY; }

// The same for what are entries already.
__device__ Entry entry_of(Entry made, int) { return made; }
__device__ void least_of(Entry limit, int, Entry& least) { least = limit; }
__device__ void nothing(Entry& made) { made = 0; }

// The sum of `own` over this lane and those before it.
__device__ int sum_upto(int own) {
    for (int d = 1; d < 32; d *= 2) {
        const int before = __shfl_up_sync(ALL, own, d);
        if (threadIdx.x % 32 >= d) own += before;
    }
    return own;
}

// The largest of a warp's.
__device__ Entry largest_of(Entry own) {
    const unsigned key = __reduce_max_sync(ALL, (unsigned)(own >> 32));
    return (Entry)key << 32 | __reduce_max_sync(ALL, own >> 32 == key ? (unsigned)own : 0);
}

// raw[number], by choosing: an array that is indexed by what is not known to the compiler would lie in memory.
template <int ITEMS, typename Raw>
__device__ Raw pick(const Raw (&raw)[ITEMS], int number) {
    Raw left[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) left[i] = raw[i];
#pragma unroll
    for (int bit = 1; bit < ITEMS; bit *= 2)
#pragma unroll
        for (int i = 0; i < ITEMS; i += 2 * bit) left[i] = number & bit ? left[i + bit] : left[i];
    return left[0];
}

// Adds the lanes' elements that reach the limit to the list, and returns where they end there, or 0 without any. A warp's are one
// piece. Were there one for each i, a row with its winners at every 256th place would make sixteen, all of the same warp.
template <int ITEMS, typename Raw>
__device__ int add(State& s, Entry* list, const Raw (&raw)[ITEMS], int at, int end, Entry limit) {
    Raw least;
    least_of(limit, at, least);
    unsigned taken = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) taken |= (unsigned)(raw[i] >= least) << i;
    if (!__any_sync(ALL, taken)) return 0;
    if (at > end - ITEMS * THREADS)
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (at + i * THREADS >= end) taken &= ~(1u << i);
    // How many the lanes before this one have, and all of them, added up bit by bit: few have more than one.
    const unsigned own = __popc(taken), bits = __reduce_or_sync(ALL, own), before = (1u << threadIdx.x % 32) - 1;
    int to = 0, all = 0;
    for (int bit = 0; bits >> bit; bit++) {
        const unsigned votes = __ballot_sync(ALL, own >> bit & 1);
        to += __popc(votes & before) << bit;
        all += __popc(votes) << bit;
    }
    if (all == 0) return 0;
    int begin = threadIdx.x % 32 == 0 ? atomicAdd(&s.count, all) : 0;
    begin = __shfl_sync(ALL, begin, 0);
    to += begin;
    if (bits < 4)  // at most three each
        for (; taken; taken &= taken - 1) {
            const int i = __ffs(taken) - 1;
            list[to++] = entry_of(pick(raw, i), at + i * THREADS);
        }
    else
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (taken >> i & 1) list[to++] = entry_of(raw[i], at + i * THREADS);
    return begin + all;
}

// A bound that at least k and at most `most` entries of the list reach. It divides the range of the entries into 256 equal bins
// and counts them; then it does the same in the bin of the k-th largest. All differ, so at last a bin holds a single one.
__device__ Entry bound(State& s, const Entry* list, int count, int k, int most) {
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    Entry low = 1, high = ~(Entry)0;
    for (int above = 0;; above = s.above) {
        Entry smallest = ~(Entry)0, largest = 0;
        for (int i = t; i < count; i += THREADS) {
            const Entry e = list[i];
            if (low <= e && e <= high) smallest = min(smallest, e), largest = max(largest, e);
        }
        s.bins[t] = 0;
        smallest = ~largest_of(~smallest), largest = largest_of(largest);
        if (lane == 0) s.ends[0][warp] = smallest, s.ends[1][warp] = largest;
        __syncthreads();
        low = ~largest_of(~s.ends[0][lane % WARPS]), high = largest_of(s.ends[1][lane % WARPS]);
        const int shift = max(0, 56 - __clzll(high - low));
        for (int i = t; i < count; i += THREADS) {
            const Entry e = list[i];
            if (low <= e && e <= high) atomicAdd(&s.bins[(e - low) >> shift], 1);
        }
        __syncthreads();
        // Sums from the highest part down.
        const int own = s.bins[BINS - 1 - t];
        int upto = sum_upto(own);
        if (lane == 31) s.sums[warp] = upto;
        __syncthreads();
        for (int w = 0; w < warp; w++) upto += s.sums[w];
        upto += above;
        if (upto >= k && upto - own < k) s.bin = BINS - 1 - t, s.upto = upto, s.above = upto - own;
        __syncthreads();
        low += (Entry)s.bin << shift;
        if (s.upto <= most) return low;
        high = low + min(high - low, ((Entry)1 << shift) - 1);
    }
}

// The list is cut to the entries that reach such a bound.
__device__ void cut(State& s, Entry* list, int k, int most) {
    const int t = threadIdx.x, count = s.count;
    const Entry limit = bound(s, list, count, k, most);
    if (t == 0) s.count = 0, s.limit = limit;
    for (int start = t; start - t < count; start += HELD * THREADS) {
        Entry held[HELD];
        for (int i = 0, at = start; i < HELD; i++, at += THREADS) held[i] = at < count ? list[at] : 0;
        __syncthreads();
        // What is written now lies before anything that is still to be read.
        add(s, list, held, 0, INT_MAX, limit);
    }
    __syncthreads();
}

// Bitonic, the largest first. `size` is a power of two; one warp is enough for 64.
__device__ void sort(Entry* list, int size) {
    const bool alone = size <= 64;
    if (alone && threadIdx.x >= 32) return;
    for (int run = 2; run <= size; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += THREADS) {
                const int at = 2 * i - (i & (apart - 1));
                const Entry a = list[at], b = list[at + apart];
                if ((a < b) == ((at & run) == 0)) list[at] = b, list[at + apart] = a;
            }
            if (alone) __syncwarp();
            else __syncthreads();
        }
}

template <int ITEMS, typename Raw>
__device__ void fetch(Raw (&raw)[ITEMS], const Raw* row, int at, int end) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++, at += THREADS)
        if (at < end) raw[i] = __ldcs(row + at);
        else nothing(raw[i]);
}

// A first bound: each thread has at least one element, and k of the threads' largest ones reach it. `last` is the last place that
// this thread's elements may have, and stands for all: a larger place makes a smaller entry, and a lower bound is right, too.
template <int ITEMS, typename Raw>
__device__ void begin(State& s, Entry* list, const Raw (&raw)[ITEMS], int last, int k) {
    Raw largest = raw[0];
#pragma unroll
    for (int i = 1; i < ITEMS; i++) largest = max(largest, raw[i]);
    list[threadIdx.x] = entry_of(largest, last);
    __syncthreads();
    const Entry limit = bound(s, list, THREADS, k, k + k / 4);
    if (threadIdx.x == 0) s.limit = limit;
    __syncthreads();
}

// About 0.618 of `count`, and without a common divisor: steps of it, round and round, come to every number below `count`.
__device__ int stride_of(int count) {
    for (int step = max(1, (int)(count * 0.618034f));; step++) {
        int a = count, b = step;
        while (b) {
            const int rest = a % b;
            a = b, b = rest;
        }
        if (a == 1) return step;
    }
}

// The k largest of one of `parts` parts of a row of n. `size` is a power of two and at least k; the list has room for `room`
// entries and one tile. A single part is a whole row, and its result is final; of others `size` entries go to `found`.
template <int ITEMS, typename Raw>
__global__ void __launch_bounds__(THREADS, 4) largest(
    const Raw* __restrict__ x, int n, int parts, int k, int size, int room, Entry* __restrict__ found,
    float* __restrict__ values, int64_t* __restrict__ indices) {
    extern __shared__ Entry list[];
    __shared__ State s;
    const int t = threadIdx.x, row = blockIdx.x / parts, part = blockIdx.x % parts;
    const int span = (n + parts - 1) / parts, first = part * span, end = min(n, first + span);
    x += (int64_t)row * n;
    if (t == 0) s.count = 0, s.limit = 1;
    Raw next[ITEMS], now[ITEMS];
    fetch(next, x, first + t, end);
    __syncthreads();
    if (2 * k <= THREADS && end - first >= THREADS) begin(s, list, next, first + t + (ITEMS - 1) * THREADS, k);
    // The first tile, the last, then the others in steps of the golden section: a row that rises, or whose winners lie together,
    // would else fill the list with every tile, and one such row in a launch is what all others wait for.
    const int tiles = (end - first + ITEMS * THREADS - 1) / (ITEMS * THREADS);
    const int others = max(1, tiles - 1), step = stride_of(others);
    for (int done = 0, tile = 0, other = others - 1; done < tiles; done++) {
        const int at = first + tile * (ITEMS * THREADS) + t;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) now[i] = next[i];
        tile = 1 + other;
        other = other + step < others ? other + step : other + step - others;
        if (done + 1 < tiles) fetch(next, x, first + tile * (ITEMS * THREADS) + t, end);
        const int upto = add(s, list, now, at, end, s.limit);
        // All threads ask at once: none may read the count while others go on adding.
        if (__syncthreads_or(upto > room)) cut(s, list, k, k + k / 4 + 64);
    }
    if (s.count > size) cut(s, list, k, size);
    for (int i = s.count + t; i < size; i += THREADS) list[i] = 0;
    __syncthreads();
    if (parts > 1) {
        for (int i = t; i < size; i += THREADS) found[(int64_t)blockIdx.x * size + i] = list[i];
        return;
    }
    sort(list, size);
    __syncthreads();
    for (int i = t; i < k; i += THREADS) {
        values[(int64_t)row * k + i] = value_of(list[i] >> 32);
        indices[(int64_t)row * k + i] = place_of(list[i]);
    }
}
"""
HOST = r"""
void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <int ITEMS, typename Raw>
void launch(
    const Raw* x, int64_t rows, int n, int parts, int k, int size, Entry* found, float* values, int64_t* indices,
    cudaStream_t stream) {
    const int room = std::max(1024, 2 * k + 512), bytes = (room + ITEMS * THREADS) * sizeof(Entry);
    check(cudaFuncSetAttribute(largest<ITEMS, Raw>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    check(cudaFuncSetAttribute(largest<ITEMS, Raw>, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    largest<ITEMS, Raw><<<rows * parts, THREADS, bytes, stream>>>(x, n, parts, k, size, room, found, values, indices);
    check(cudaGetLastError());
}

// Pointers and the stream are numbers here: torch's headers would take half a minute to compile.
void topmost(
    int64_t x, int64_t rows, int64_t n, int64_t parts, int64_t k, int64_t size, int64_t found, int64_t values, int64_t indices,
    int64_t stream) {
    if (k > 2048) throw std::runtime_error("k=" + std::to_string(k) + ": this kernel's list has room for 2048");
    auto *made = (Entry*)found, *none = (Entry*)nullptr;
    auto* value = (float*)values;
    auto* index = (int64_t*)indices;
    auto on = (cudaStream_t)stream;
    const auto first = k > 1024 ? launch<8, float> : launch<16, float>;
    first((const float*)x, rows, n, parts, k, size, made, value, index, on);
    if (parts > 1) launch<4, Entry>(made, rows, parts * size, 1, k, size, none, value, index, on);
}
"""
HEADERS = "".join(f"#include <{name}>\n" for name in ("algorithm", "climits", "cstdint", "stdexcept", "string"))
TOPMOST = f"void topmost({', '.join(['int64_t'] * 10)});"
topmost = load_inline(
    "topmost",
    f"{HEADERS}#include <pybind11/pybind11.h>\n{TOPMOST}",
    f"{HEADERS}#include <cuda_runtime.h>\n{KERNEL}{HOST}",
    functions=["topmost"],
    extra_cuda_cflags=["-O3"],
    no_implicit_headers=True,
    with_pytorch_error_handling=False,
).topmost

START = 2
"""What a block does besides its tiles, in tiles."""


@functools.cache
def parts_of(rows: int, n: int, k: int, size: int, at_once: int) -> int:
    """How many blocks share a row, so that the last of them is done soonest; `at_once` run at the same time."""
    tile = 2048 if k > 1024 else 4096

    def tiles(parts: int) -> int:
        joining = START + math.ceil(parts * size / 1024) if parts > 1 else 0
        return math.ceil(rows * parts / at_once) * (START + math.ceil(n / parts / tile)) + joining

    return min(range(1, max(1, n // tile) + 1), key=tiles)


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    (rows, n), k = x.shape, len(ranks)
    size = max(64, 1 << (k - 1).bit_length())
    at_once = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count
    parts = parts_of(rows, n, k, size, at_once)
    found = torch.empty(rows * parts * size if parts > 1 else 0, dtype=torch.int64, device=x.device)
    tensors = (found.data_ptr(), values.data_ptr(), indices.data_ptr())
    topmost(x.data_ptr(), rows, n, parts, k, size, *tensors, torch.cuda.current_stream().cuda_stream)
