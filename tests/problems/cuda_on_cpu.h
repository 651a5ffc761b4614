// What a kernel of one-dimensional blocks of 256 threads needs to run on a CPU: a thread for each thread, barriers, and the
// operations of a warp. Blocks run one after the other. It shows what a kernel computes, not how fast, nor what it races for.
#include <algorithm>
#include <barrier>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <type_traits>
#include <vector>

constexpr int EMULATED_THREADS = 256, LANES = 32;
struct Index { int x; };
static thread_local Index threadIdx, blockIdx;
static unsigned long long shared_memory[1 << 14];
static bool beyond;  // Whether a block wrote past the shared memory that its kernel asked for.
constexpr unsigned char GARBAGE = 0xa5;

static std::barrier<> block_barrier(EMULATED_THREADS);
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static long long exchanged[EMULATED_THREADS];
static int voted;

#define __device__ static inline
#define __global__ static
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)

static void __syncthreads() { block_barrier.arrive_and_wait(); }
static void __syncwarp() { warp_barriers[threadIdx.x / LANES]->arrive_and_wait(); }
static int __syncthreads_or(int vote) {
    if (threadIdx.x == 0) voted = 0;
    __syncthreads();
    if (vote) __atomic_store_n(&voted, 1, __ATOMIC_SEQ_CST);
    __syncthreads();
    const int all = voted;
    __syncthreads();
    return all;
}
// What `combine` makes of the numbers of all lanes of a warp.
template <typename Combine>
static long long in_warp(long long own, Combine combine) {
    exchanged[threadIdx.x] = own;
    __syncwarp();
    const long long found = combine(exchanged + threadIdx.x / LANES * LANES);
    __syncwarp();
    return found;
}
static int __shfl_sync(unsigned, int own, int from) {
    return in_warp(own, [=](long long* lanes) { return lanes[from]; });
}
static int __shfl_up_sync(unsigned, int own, int by) {
    const int lane = threadIdx.x % LANES;
    return in_warp(own, [=](long long* lanes) { return lanes[lane >= by ? lane - by : lane]; });
}
static int __any_sync(unsigned, unsigned own) {
    return in_warp(own != 0, [](long long* lanes) { return *std::max_element(lanes, lanes + LANES); });
}
static unsigned __reduce_max_sync(unsigned, unsigned own) {
    return in_warp(own, [](long long* lanes) { return *std::max_element(lanes, lanes + LANES); });
}
static unsigned __reduce_or_sync(unsigned, unsigned own) {
    return in_warp(own, [](long long* lanes) { return std::accumulate(lanes, lanes + LANES, 0LL, std::bit_or<>()); });
}
static unsigned __ballot_sync(unsigned, unsigned own) {
    const int lane = threadIdx.x % LANES;
    return __reduce_or_sync(0, own ? 1u << lane : 0);
}
static int atomicAdd(int* at, int more) { return __atomic_fetch_add(at, more, __ATOMIC_SEQ_CST); }
static int __float_as_int(float value) {
    int bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
static float __int_as_float(int bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
static int __clzll(unsigned long long bits) { return bits ? __builtin_clzll(bits) : 64; }
static int __ffs(unsigned bits) { return __builtin_ffs(bits); }
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <typename T> static T __ldcs(const T* at) { return *at; }
template <typename A, typename B> static auto max(A a, B b) -> std::common_type_t<A, B> { return a > b ? a : b; }
template <typename A, typename B> static auto min(A a, B b) -> std::common_type_t<A, B> { return a < b ? a : b; }

// Runs a kernel on so many blocks, with so many bytes of shared memory, which hold garbage at first.
template <typename Kernel>
static void on_cpu(int blocks, size_t shared_bytes, Kernel kernel) {
    warp_barriers.clear();
    for (int warp = 0; warp < EMULATED_THREADS / LANES; warp++) warp_barriers.push_back(std::make_unique<std::barrier<>>(LANES));
    std::vector<std::thread> threads;
    for (int t = 0; t < EMULATED_THREADS; t++)
        threads.emplace_back([=] {
            threadIdx.x = t;
            for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
                if (t == 0) std::memset(shared_memory, GARBAGE, sizeof shared_memory);
                __syncthreads();
                kernel();
                __syncthreads();
                const auto* bytes = (const unsigned char*)shared_memory;
                if (t == 0)
                    for (size_t at = shared_bytes; at < sizeof shared_memory; at++) beyond |= bytes[at] != GARBAGE;
            }
        });
    for (auto& thread : threads) thread.join();
}
