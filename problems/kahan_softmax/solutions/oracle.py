# verdict: passed
# C for one core: exponentials by vectors, sums as pairs of floats in four of them, and a fused multiply-add an element to divide.

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

/* A vector of twice a register's size would live in memory. */
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef struct { vec high, low; } pair;

enum { CHAINS = 4, STEP = LANES * CHAINS };

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) { vec x; memcpy(&x, p, sizeof x); return x; }
INLINE void store(float *p, vec x) { memcpy(p, &x, sizeof x); }
INLINE vec maxv(vec a, vec b) { ivec m = a > b; return (vec)(((ivec)a & m) | ((ivec)b & ~m)); }

/* a * b + c, rounded once. Left to the compiler, a * b + c * d might round the wrong product first. */
INLINE vec fused(vec a, vec b, vec c) {
#ifdef __AVX512F__
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    vec y;
    for (int i = 0; i < LANES; i++) y[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return y;
#endif
}

/* a.high + a.low + b, of which nothing is lost but what low + low loses. There is no product here that could be fused. */
INLINE pair add(pair a, vec high, vec low) {
    vec s = a.high + high, t = s - a.high;
    vec lost = (a.high - (s - t)) + (high - t);
    return (pair){s, a.low + low + lost};
}

/* e^x for x <= 0, and 0 where that is below the smallest normal number, 2^-126. */
INLINE vec expv(vec x) {
    vec least = (vec){0} - 87.33f;
    ivec under = x < least;
    x = maxv(x, least);
    ivec n = __builtin_convertvector(x * 1.44269504f - 0.5f, ivec);
    vec k = __builtin_convertvector(n, vec);
    vec f = fused(k, (vec){0} - 0.693145752f, x);  /* its last bits are 0: exact for every k here */
    f = fused(k, (vec){0} - 1.42860677e-6f, f);
    vec y = f * 1.98412698e-4f + 1.38888889e-3f;
    y = y * f + 8.33333333e-3f;
    y = y * f + 4.16666667e-2f;
    y = y * f + 1.66666667e-1f;
    y = y * f + 0.5f;
    y = fused(y * f, f, f) + 1.0f;
    return (vec)(((ivec)y + (n << 23)) & ~under);
}

static float largest(const float *x, long V) {
    vec m[CHAINS];
    float most = -INFINITY;
    long i = 0;
    for (int c = 0; c < CHAINS; c++) m[c] = (vec){0} - INFINITY;
    for (; i + STEP <= V; i += STEP)
        for (int c = 0; c < CHAINS; c++) m[c] = maxv(load(x + i + c * LANES), m[c]);
    for (; i < V; i++) most = x[i] > most ? x[i] : most;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < LANES; l++) most = m[c][l] > most ? m[c][l] : most;
    return most;
}

/* Puts all e^(x - most) into y; their sum is high + low. */
static void exponentials(const float *x, float *y, long V, float most, float *high, float *low) {
    pair s[CHAINS] = {{{0}, {0}}};
    long i = 0;
    for (; i + STEP <= V; i += STEP)
        for (int c = 0; c < CHAINS; c++) {
            vec e = expv(load(x + i + c * LANES) - most);
            store(y + i + c * LANES, e);
            s[c] = add(s[c], e, (vec){0});
        }
    for (; i < V; i += LANES) {
        float part[LANES];
        long count = V - i < LANES ? V - i : LANES;
        for (int l = 0; l < LANES; l++) part[l] = l < count ? x[i + l] : -INFINITY;
        vec e = expv(load(part) - most);
        memcpy(y + i, &e, count * sizeof *y);
        s[0] = add(s[0], e, (vec){0});
    }
    for (int c = 1; c < CHAINS; c++) s[0] = add(s[0], s[c].high, s[c].low);
    vec h = s[0].high, l = s[0].low;
    for (int by = LANES / 2; by; by /= 2)
        for (int k = 0; k < by; k++) {
            float a = h[k], b = h[k + by], sum = a + b, t = sum - a;
            l[k] += l[k + by] + ((a - (sum - t)) + (b - t));
            h[k] = sum;
        }
    *high = h[0];
    *low = l[0];
}

void softmax(const float *x, float *y, long R, long V) {
    for (; R--; x += V, y += V) {
        float high, low;
        exponentials(x, y, V, largest(x, V), &high, &low);
        /* 1 / (high + low) is one + rest, to about 2^-46. */
        float one = 1 / high, rest = one * (__builtin_fmaf(-high, one, 1.0f) - low * one);
        long i = 0;
        for (; i + LANES <= V; i += LANES) {
            vec e = load(y + i);
            store(y + i, fused(e, (vec){0} + one, e * rest));
        }
        for (; i < V; i++) y[i] = __builtin_fmaf(y[i], one, y[i] * rest);
    }
}
"""


def build() -> ctypes.CDLL:
    """Compile SOURCE for this very processor and load it."""
    if not (compiler := shutil.which("cc")):
        raise RuntimeError("this solution needs a C compiler, and there is no `cc` on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "softmax.c"), Path(folder, "softmax.so")
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-fPIC", "-shared", "-o", str(library), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return ctypes.CDLL(str(library))


SOFTMAX = build().softmax
SOFTMAX.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
SOFTMAX.restype = None


def solution(x: Tensor, y: Tensor) -> None:
    SOFTMAX(x.data_ptr(), y.data_ptr(), *x.shape)
