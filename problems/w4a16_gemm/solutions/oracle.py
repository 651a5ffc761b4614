# verdict: passed
# C for one core: codes become bf16 by two bit operations, zero points and scales are applied once per group, in fp32.

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

SOURCE = r"""
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* A vector of twice a register's size would live in memory. */
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef uint16_t bf16;
typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));

/* Rows of x at once, one to a lane of what is summed for each, and channels at once. */
enum { MOST = LANES, CHUNK = 2 * LANES };

#define INLINE static inline __attribute__((always_inline))

typedef struct { const bf16 *x; const uint8_t *qw; const bf16 *s; const uint8_t *z; bf16 *y; int M, N, K, G; } problem;

/* A bf16 is the upper half of a float. */
INLINE float wide(bf16 x) { uint32_t u = (uint32_t)x << 16; float f; memcpy(&f, &u, 4); return f; }
INLINE bf16 narrow(float x) { uint32_t u; memcpy(&u, &x, 4); return (u + 0x7fffu + ((u >> 16) & 1)) >> 16; }

/* LANES bytes to 2 * LANES codes: each lane gets two bf16. 0x4300 is 128 with steps of 1 below it, so 0x4300 | q is 128 + q. */
INLINE uvec unpack(const uint8_t *p) {
    bytes b;
    memcpy(&b, p, sizeof b);
    uvec u = __builtin_convertvector(b, uvec);
    return ((u | u << 12) & 0x000f000fu) | 0x43004300u;
}

/* CHUNK of x as they are multiplied: where there are products of bf16 as they are, elsewhere those at even places and then
   those at odd ones. And sum + the products of CHUNK pairs, two to a lane. */
#if defined(__AVX512F__) && defined(__AVX512BF16__)
typedef bf16 factor;
INLINE void factors(factor *to, const bf16 *x) { memcpy(to, x, CHUNK * sizeof *x); }
INLINE vec dot(vec sum, uvec w, const factor *x) {
    __m512bh a, b;
    memcpy(&a, &w, sizeof a);
    memcpy(&b, x, sizeof b);
    return (vec)_mm512_dpbf16_ps((__m512)sum, a, b);
}
#else
typedef float factor;
INLINE void factors(factor *to, const bf16 *x) {
    uvec both;
    memcpy(&both, x, sizeof both);
    const uvec even = both << 16, odd = both & 0xffff0000u;
    memcpy(to, &even, sizeof even);
    memcpy(to + LANES, &odd, sizeof odd);
}
INLINE vec dot(vec sum, uvec w, const factor *x) {
    vec even, odd;
    memcpy(&even, x, sizeof even);
    memcpy(&odd, x + LANES, sizeof odd);
    sum += (vec)(w << 16) * even;
    return sum + (vec)(w & 0xffff0000u) * odd;
}
#endif

#if defined(__AVX512F__) && !defined(__clang__)
INLINE float sum_of(vec x) {
    const uvec lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int by = 8; by; by /= 2) x += __builtin_shuffle(x, lane ^ by);
    return x[0];
}
#else
INLINE float sum_of(vec x) {
    float s[LANES];
    memcpy(s, &x, sizeof s);
    for (int by = LANES / 2; by; by /= 2)
        for (int i = 0; i < by; i++) s[i] += s[i + by];
    return s[0];
}
#endif

/* All outputs of the rows m0 to m0 + R - 1 of x; past the last row that one again, and nothing is written. `packed` gets
   the rows chunk by chunk, `sums` their sum over each group: sum (128 + q) x - (128 + z) sum x = sum (q - z) x. */
INLINE void multiply_rows(const int R, const problem *a, int m0, factor *packed, float *sums) {
    const int chunks = a->K / CHUNK, groups = a->K / a->G, real = a->M - m0 < R ? a->M - m0 : R;
    for (int r = 0; r < R; r++) {
        const bf16 *row = a->x + (long)(m0 + (r < real ? r : real - 1)) * a->K;
        for (int c = 0; c < chunks; c++) factors(packed + ((long)c * R + r) * CHUNK, row + c * CHUNK);
        for (int g = 0; g < groups; g++) {
            float sum = 0;
            for (int k = 0; k < a->G; k++) sum += wide(row[g * a->G + k]);
            sums[g * MOST + r] = sum;
        }
    }
    for (int n = 0; n < a->N; n++) {
        const uint8_t *codes = a->qw + (long)n * (a->K / 2);
        const factor *at = packed;
        vec total[MOST], part[MOST], offset = {0}, x;
        for (int r = 0; r < R; r++) total[r] = (vec){0};
        for (int g = 0; g < groups; g++) {
            const float scale = wide(a->s[(long)n * groups + g]), zero = 128 + a->z[(long)n * groups + g];
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) part[r] = (vec){0};
            for (int k = 0; k < a->G; k += CHUNK, codes += CHUNK / 2, at += R * CHUNK) {
                /* The rows of codes lie one after the other: this asks for what is due a few rows later. */
                __builtin_prefetch(codes + 2048, 0, 3);
                uvec w = unpack(codes);
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) part[r] = dot(part[r], w, at + r * CHUNK);
            }
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) total[r] += part[r] * scale;
            memcpy(&x, sums + g * MOST, sizeof x);
            offset += x * (scale * zero);
        }
        for (int r = 0; r < real; r++) a->y[(long)(m0 + r) * a->N + n] = narrow(sum_of(total[r]) - offset[r]);
    }
}

void multiply(const bf16 *x, const uint8_t *qw, const bf16 *s, const uint8_t *z, bf16 *y, int M, int N, int K, int G,
              factor *packed, float *sums) {
    problem a = {x, qw, s, z, y, M, N, K, G};
    for (int m = 0; m < M;) {
        int left = M - m;
        if (left > 8 && MOST > 8) { multiply_rows(MOST, &a, m, packed, sums); m += MOST; }
        else if (left > 4) { multiply_rows(8, &a, m, packed, sums); m += 8; }
        else if (left > 1) { multiply_rows(4, &a, m, packed, sums); m += 4; }
        else { multiply_rows(1, &a, m, packed, sums); m += 1; }
    }
}
"""


def build() -> ctypes.CDLL:
    """Compile SOURCE for this very processor and load it."""
    if not (compiler := shutil.which("cc")):
        raise RuntimeError("this solution needs a C compiler, and there is no `cc` on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "multiply.c"), Path(folder, "multiply.so")
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-fPIC", "-shared", "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return ctypes.CDLL(str(library))


MULTIPLY = build().multiply
MULTIPLY.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 4 + [ctypes.c_void_p] * 2
MULTIPLY.restype = None


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    M, K = x.shape
    N, groups = s.shape
    if K // groups % 32:
        raise ValueError(f"G={K // groups}: this kernel wants groups in steps of 32")
    packed, sums = torch.empty(16 * K), torch.empty(16 * groups)
    MULTIPLY(
        x.data_ptr(), qw.data_ptr(), s.data_ptr(), z.data_ptr(), y.data_ptr(), M, N, K, K // groups,
        packed.data_ptr(), sums.data_ptr(),
    )  # fmt: skip
