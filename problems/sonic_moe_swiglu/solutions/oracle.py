# verdict: passed
# C for one core: every weight is read once for all rows of its expert; blocks of 8 rows by 2 columns stay in registers.

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor

SOURCE = r"""
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* A vector of twice a register's size would live in memory. Without products of bf16 eight lanes will do everywhere. */
#if defined(__AVX512F__) && defined(__AVX512BF16__)
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec pick(ivec where, vec a, vec b) { return (vec)(((ivec)a & where) | ((ivec)b & ~where)); }

/* 2^x for x <= 0, and 0 below 2^-126. */
INLINE vec exp2v(vec x) {
    vec low = (vec){0} - 126.0f;
    ivec under = x < low;
    x = pick(under, low, x);
    ivec n = __builtin_convertvector(x - 0.5f, ivec);
    vec f = x - __builtin_convertvector(n, vec);
    vec y = f * 1.5403530e-4f + 1.3333558e-3f;
    y = y * f + 9.6181291e-3f;
    y = y * f + 5.5504109e-2f;
    y = y * f + 2.4022651e-1f;
    y = y * f + 6.9314718e-1f;
    y = y * f + 1.0f;
    return (vec)(((ivec)y + (n << 23)) & ~under);
}

/* x / (1 + e^-x), by e^-|x|, which cannot overflow. */
INLINE vec silu(vec x) {
    vec small = exp2v((vec)((ivec)x | (int32_t)0x80000000) * 1.44269504f);
    return x * pick(x < 0, small, (vec){0} + 1.0f) / (small + 1.0f);
}

/* Rounded to bf16, in the lower half of each lane. */
INLINE uvec rounded(vec x) {
    uvec u = (uvec)x;
    return (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
}

/* `finished` takes eight rows of x and two columns: w has the columns' rows of gate weights, then those of up. Of its 16 answers
   0 to 3 are the first column of the first four rows, 4 to 7 the second, and so on for the other rows. */
#if defined(__AVX512F__) && defined(__AVX512BF16__)
#define HALVES(a, b) _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee))
#define QUARTERS(a, b) _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))
#define PAIRS(a, b) _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee))
#define SINGLES(a, b) _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))
/* memcpy and not a cast: for the cast gcc 12 goes through the stack. */
INLINE __m512bh load(const bf16 *p) { __m512bh x; memcpy(&x, p, sizeof x); return x; }

/* The products of four rows of weights and four of x: lane 4 w + t has w . x[t]. */
INLINE vec dots(const bf16 *const *w, const bf16 *const *x, int H) {
    __m512 s[16], r[4];
    for (int i = 0; i < 16; i++) s[i] = _mm512_setzero_ps();
    for (int h = 0; h < H; h += 32) {
        __m512bh a[4];
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) a[t] = load(x[t] + h);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) s[i] = _mm512_dpbf16_ps(s[i], a[i % 4], load(w[i / 4] + h));
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) r[k] = QUARTERS(HALVES(s[k], s[4 + k]), HALVES(s[8 + k], s[12 + k]));
    return (vec)SINGLES(PAIRS(r[0], r[1]), PAIRS(r[2], r[3]));
}

INLINE void finished(const bf16 *const *w, const bf16 *const *x, int n, int H, uint32_t *answers) {
    const vec a = dots(w, x, H), b = n > 4 ? dots(w, x + 4, H) : a;
    const vec gate = (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44);
    const vec up = (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee);
    const uvec y = rounded(silu(gate) * up);
    memcpy(answers, &y, sizeof y);
}
#else
/* A bf16 is the upper half of a float. 2 * LANES of them become two vectors: those at even and those at odd places. */
INLINE void widen(const bf16 *p, vec *even, vec *odd) {
    uvec x;
    memcpy(&x, p, sizeof x);
    *even = (vec)(x << 16);
    *odd = (vec)(x & 0xffff0000u);
}

/* The products of two rows of weights and four of x: lane 4 w + t has w . x[t]. */
INLINE vec dots(const bf16 *const *w, const bf16 *const *x, int H) {
    vec s[8];
    float parts[8][LANES], sums[8];
    for (int i = 0; i < 8; i++) s[i] = (vec){0};
    for (int h = 0; h < H; h += 2 * LANES) {
        vec even[2], odd[2];
        widen(w[0] + h, even, odd);
        widen(w[1] + h, even + 1, odd + 1);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            vec e, o;
            widen(x[t] + h, &e, &o);
            s[t] += even[0] * e;
            s[t] += odd[0] * o;
            s[4 + t] += even[1] * e;
            s[4 + t] += odd[1] * o;
        }
    }
    memcpy(parts, s, sizeof parts);
    for (int i = 0; i < 8; i++) {
        for (int by = LANES / 2; by; by /= 2)
            for (int l = 0; l < by; l++) parts[i][l] += parts[i][l + by];
        sums[i] = parts[i][0];
    }
    vec out;
    memcpy(&out, sums, sizeof out);
    return out;
}

INLINE void finished(const bf16 *const *w, const bf16 *const *x, int n, int H, uint32_t *answers) {
    for (int t = 0; t < n; t += 4) {
        const vec gate = dots(w, x + t, H), up = dots(w + 2, x + t, H);
        const uvec y = rounded(silu(gate) * up);
        memcpy(answers + 2 * t, &y, sizeof y);
    }
}
#endif

void experts(const bf16 *x, const int32_t *tok, const int32_t *off, const bf16 *W, bf16 *out, int E, int H, int I) {
    for (int e = 0; e < E; e++) {
        const bf16 *gate = W + (long)e * 2 * I * H, *up = gate + (long)I * H;
        for (int i = 0; i < I && off[e] < off[e + 1]; i += 2) {
            const int next = i + 1 < I ? i + 1 : i;
            const bf16 *w[4] = {gate + (long)i * H, gate + (long)next * H, up + (long)i * H, up + (long)next * H};
            for (int r = off[e]; r < off[e + 1]; r += 8) {
                const int n = off[e + 1] - r < 8 ? off[e + 1] - r : 8;
                const bf16 *rows[8];
                for (int t = 0; t < 8; t++) rows[t] = x + (long)tok[r + (t < n ? t : n - 1)] * H;
                uint32_t answers[16];
                finished(w, rows, n, H, answers);
                for (int t = 0; t < n; t++) {
                    bf16 *to = out + (long)(r + t) * I;
                    to[i] = answers[t / 4 * 8 + t % 4];
                    to[next] = answers[t / 4 * 8 + t % 4 + (next > i ? 4 : 0)];
                }
            }
        }
    }
}
"""


def build() -> ctypes.CDLL:
    """Compile SOURCE for this very processor and load it."""
    if not (compiler := shutil.which("cc")):
        raise RuntimeError("this solution needs a C compiler, and there is no `cc` on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "experts.c"), Path(folder, "experts.so")
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-fPIC", "-shared", "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return ctypes.CDLL(str(library))


EXPERTS = build().experts
EXPERTS.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 3
EXPERTS.restype = None


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    E, twice, H = W.shape
    if H % 32:
        raise ValueError(f"H={H}: this kernel wants H in steps of 32")
    EXPERTS(x.data_ptr(), tok.data_ptr(), off.data_ptr(), W.data_ptr(), out.data_ptr(), E, H, twice // 2)
