// Parts of the kernel in fused.cu: sizes, features, combining, sums over a block and over blocks.

#pragma once

#include <cstdint>

constexpr int K = DOKL_K, M = DOKL_M, DIN = DOKL_DIN;  // nodes, outputs, inputs
constexpr int S = DOKL_S;                               // 2 for [cos, sin], otherwise 1
constexpr int THREADS = DOKL_THREADS, R = DOKL_R;       // R frequencies a thread,
constexpr int G = DOKL_G;                               // G of them at a time
constexpr bool ATC = DOKL_ATC, WEIGHTED = DOKL_WEIGHTED, AVERAGE = DOKL_AVERAGE, SHRINK = DOKL_SHRINK;
constexpr bool NODE_RATE = DOKL_NODE_RATE;  // whether each node has its own rate
constexpr bool MIXING = DOKL_MIXING;        // whether there is a network
constexpr bool AHEAD = DOKL_AHEAD, WIDE = DOKL_WIDE;

constexpr int ROWS = K * M, COLS = THREADS * R, WARPS = THREADS / 32, DPAD = (DIN + 3) / 4 * 4;
constexpr bool WHOLE = R == G;  // psi and z of a step stay in registers; so it must be without a network
static_assert(MIXING || WHOLE);
constexpr int P2 = ROWS <= 1 ? 1 : ROWS <= 2 ? 2 : ROWS <= 4 ? 4 : ROWS <= 8 ? 8 : ROWS <= 16 ? 16 : 32;
constexpr int SUMS = (4 * WARPS * P2 + 3) / 4 * 4;  // floats in shared memory
constexpr int GS = G * S, X_EACH = (K * DIN + THREADS - 1) / THREADS;

struct Args {
  const float *number, *omega, *base, *theta, *bias, *mean, *mean_bias, *x, *y, *w, *rate, *gain;
  const int *pre, *starts;
  const int4 *pairs;
  float *theta_out, *bias_out, *mean_out, *mean_bias_out, *f;
  unsigned long long *meeting;  // [2][blocks][P2]
  int F, T, nodes, graphs, n_pairs;  // nodes of a realization: K, or more where nodes are alone
  int own_map, own_graph;            // whether each realization has its own
  int split;                         // blocks of one network
};

__device__ __forceinline__ float wave(float u) {  // cos(2 pi u)
  const float s = 0.25f - fabsf(u - rintf(u)), q = s * s;
  return s * (6.28318516f + q * (-41.34165503f + q * (81.60100408f + q * (-76.54978247f + q * 39.53670726f))));
}

__device__ __forceinline__ float slope(float y, float f, float p) {
  const float e = f - y;
#if DOKL_LOSS == 0
  return e;
#elif DOKL_LOSS == 1
  return y * f < 1.f ? -y : 0.f;
#elif DOKL_LOSS == 2
  return -y * fmaxf(0.f, 1.f - y * f);
#elif DOKL_LOSS == 3
  return -y / (1.f + expf(y * f));
#elif DOKL_LOSS == 4
  return e != e ? e : fminf(fmaxf(e, -p), p);
#elif DOKL_LOSS == 5
  return e > 0.f ? 1.f : e < 0.f ? -1.f : e;
#elif DOKL_LOSS == 6
  return fabsf(e) > p ? (e > 0.f ? 1.f : -1.f) : 0.f;
#else
  return e > 0.f ? 1.f - p : e < 0.f ? -p : 0.f;
#endif
}

// v[r] summed over the warp; lane l returns the sum of row l % P2. Lanes trade halves of the rows,
// so 32 rows take 31 exchanges instead of 160.
template <int HALF>
__device__ __forceinline__ void trade(float (&v)[P2]) {
  if constexpr (HALF >= 1) {
    const bool upper = threadIdx.x & HALF;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      const float give = upper ? v[i] : v[i + HALF], keep = upper ? v[i + HALF] : v[i];
      v[i] = keep + __shfl_xor_sync(~0u, give, HALF);
    }
    trade<HALF / 2>(v);
  }
}

__device__ __forceinline__ float warp_rows(float (&v)[P2]) {
  trade<P2 / 2>(v);
  float total = v[0];
#pragma unroll
  for (int off = P2; off < 32; off *= 2) total += __shfl_xor_sync(~0u, total, off);
  return total;
}

// Sums [WARPS][P2] of all warps added up; lane l returns the sum of row l % P2.
__device__ __forceinline__ float sum_rows(const float *sums) {
  const int lane = threadIdx.x & 31;
  float total = 0.f;
#pragma unroll
  for (int i = lane / P2; i < WARPS; i += 32 / P2) total += sums[i * P2 + (lane & (P2 - 1))];
#pragma unroll
  for (int off = P2; off < 32; off *= 2) total += __shfl_xor_sync(~0u, total, off);
  return total;
}

__device__ __forceinline__ void tell(unsigned long long *to, unsigned tag, float value) {
  const unsigned long long word = (unsigned long long)tag << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ __forceinline__ float hear(const unsigned long long *from, unsigned tag) {
  unsigned long long word;
  do {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  } while ((unsigned)(word >> 32) != tag);
  return __uint_as_float((unsigned)word);
}

struct Group {  // G of one thread's frequencies
  float om[G][DIN], base[G];
  bool there[G];
};

__device__ __forceinline__ Group group(const float *omega, const float *base, int F, int col0, int at) {
  Group c;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const int col = col0 + (at + g) * THREADS + threadIdx.x;
    c.there[g] = col < F;
    if (AHEAD) continue;
    c.base[g] = c.there[g] ? __ldg(base + col) : 0.25f;
#pragma unroll
    for (int j = 0; j < DIN; ++j) c.om[g][j] = c.there[g] ? __ldg(omega + j * F + col) : 0.f;
  }
  return c;
}

// z of one node at a group's frequencies, before the factor sqrt(2/D).
__device__ __forceinline__ void features(const Group &c, const float *x, float (&z)[GS]) {
  float xk[DPAD];
#pragma unroll
  for (int j = 0; j < DPAD / 4; ++j) reinterpret_cast<float4 *>(xk)[j] = reinterpret_cast<const float4 *>(x)[j];
#pragma unroll
  for (int g = 0; g < G; ++g) {
    float u = c.base[g];
#pragma unroll
    for (int j = 0; j < DIN; ++j) u = fmaf(xk[j], c.om[g][j], u);
    z[g] = wave(u);  // 0 where there is no frequency: its base is a quarter turn
    if (S == 2) z[G + g] = c.there[g] ? wave(u - 0.25f) : 0.f;
  }
}

// z of one node computed ahead; zt points at this thread's first frequency.
__device__ __forceinline__ void given(const Group &c, const float *zt, int F, int at, float (&z)[GS]) {
#pragma unroll
  for (int i = 0; i < GS; ++i) z[i] = c.there[i % G] ? __ldg(zt + (i / G) * F + (at + i % G) * THREADS) : 0.f;
}

#define COL(at, i) (((i) / G) * COLS + ((at) + (i) % G) * THREADS + tid)

// psi = sum over links of weight * theta, at the frequencies of group `at`. The links of all nodes
// follow each other, so what the next pair needs is loaded before this one is added; two spare
// pairs at the end are loaded for nothing.
__device__ __forceinline__ void combine(const float *theta, const int *starts, const int4 *pairs,
                                        int at, int tid, float (&psi)[ROWS][GS]) {
  int j = starts[0];
  int4 now = pairs[j], next = pairs[j + 1];
  float left[M * GS], right[M * GS];
#pragma unroll
  for (int i = 0; i < M * GS; ++i) {
    left[i] = theta[now.x + i / GS * S * COLS + COL(at, i % GS)];
    right[i] = theta[now.z + i / GS * S * COLS + COL(at, i % GS)];
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < M * GS; ++i) psi[k * M + i / GS][i % GS] = 0.f;
    const int stop = starts[k + 1];
#pragma unroll 1
    for (; j < stop; ++j) {
      const float a = __int_as_float(now.y), b = __int_as_float(now.w);
      now = next;
      next = pairs[j + 2];
#pragma unroll
      for (int i = 0; i < M * GS; ++i) {
        float &t = psi[k * M + i / GS][i % GS];
        const float l = left[i], r = right[i];
        left[i] = theta[now.x + i / GS * S * COLS + COL(at, i % GS)];
        right[i] = theta[now.z + i / GS * S * COLS + COL(at, i % GS)];
        t = fmaf(b, r, fmaf(a, l, t));
      }
    }
  }
}

__device__ __forceinline__ void read(const float *theta, int at, int tid, float (&psi)[ROWS][GS]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int i = 0; i < GS; ++i) psi[r][i] = theta[r * S * COLS + COL(at, i)];
}

__device__ __forceinline__ void write(float *theta, int at, int tid, const float (&psi)[ROWS][GS]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int i = 0; i < GS; ++i) theta[r * S * COLS + COL(at, i)] = psi[r][i];
}

// mean += gain * (theta - mean), in device memory; only this thread touches these entries.
__device__ __forceinline__ void average(float *mean, float gain, int F, int col0, int at, const float (&psi)[ROWS][GS]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int i = 0; i < GS; ++i) {
      const int col = col0 + (at + i % G) * THREADS + threadIdx.x;
      if (col >= F) continue;
      float *m = mean + (size_t)(r * S + i / G) * F + col;
      *m += gain * (psi[r][i] - *m);
    }
}
