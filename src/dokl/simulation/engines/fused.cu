// Steps of many networks, one thread block each, with theta on the chip: `fused.py` compiles this.
//
// A thread owns R frequencies and all nodes' entries there, so combining needs no other thread;
// only the predictions, one per node and output, are summed over the block, once a step. With a
// network theta lies in shared memory and the links are walked in pairs; without one every node
// is a block of its own and theta lies in registers.
//
// A large or lonely network is split over several blocks (WIDE), each with its share of the
// frequencies; they meet once a step to add up predictions. Features are computed here, or were
// computed ahead by JAX and are read (AHEAD), where there are many inputs.
//
// Sizes and switches are given on the command line (DOKL_K, ...); all else is an argument.

#include "fused.cuh"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

__global__ void __launch_bounds__(THREADS, DOKL_BLOCKS) sweep(const Args a) {
  extern __shared__ float4 memory[];
  const int tid = threadIdx.x, warp = tid / 32, lane = tid & 31, row = lane & (P2 - 1);
  const int learner = WIDE ? blockIdx.x / a.split : blockIdx.x, col0 = WIDE ? blockIdx.x % a.split * COLS : 0;
  const int apart = a.nodes / K, run = learner / apart, first = learner % apart * K;
  float *xs = reinterpret_cast<float *>(memory);       // [3][K][DPAD]
  float2 *moves = reinterpret_cast<float2 *>(xs + 3 * K * DPAD);  // [WARPS][P2]: shrink, pull
  float *partial = reinterpret_cast<float *>(moves + WARPS * P2);  // [4][WARPS][P2]
  int4 *pairs = reinterpret_cast<int4 *>(partial + SUMS);
  int *starts = reinterpret_cast<int *>(pairs + a.n_pairs);
  float *theta = reinterpret_cast<float *>(starts + (a.graphs * (K + 1) + 3) / 4 * 4);  // [ROWS][S][COLS]

  const float lam = a.number[0], c = a.number[1], p = a.number[2], scale = a.number[3];
  const size_t vectors = (size_t)(run * a.nodes + first) * M * S * a.F;
  float *mean = a.mean_out + vectors;

  const float *omega = a.omega + (a.own_map ? (size_t)run * DIN * a.F : 0);
  const float *base = a.base + (a.own_map ? (size_t)run * a.F : 0);
  Group mine;
  if (WHOLE) mine = group(omega, base, a.F, col0, 0);
  float held[ROWS][MIXING ? 1 : R * S];  // theta of nodes that are alone
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int i = 0; i < R * S; ++i) {
      const int own = i % R * THREADS + tid, col = col0 + own;
      const size_t at = vectors + (size_t)(r * S + i / R) * a.F + col;
      const float v = col < a.F ? a.theta[at] : 0.f;
      if (MIXING) theta[(r * S + i / R) * COLS + own] = v;
      else held[r][i] = v;
      if (AVERAGE && col < a.F) a.mean_out[at] = a.mean[at];
    }
#if DOKL_MIXING
  for (int i = tid; i < a.n_pairs; i += THREADS) pairs[i] = a.pairs[(a.own_graph ? (size_t)run * a.n_pairs : 0) + i];
  for (int i = tid; i < a.graphs * (K + 1); i += THREADS) starts[i] = a.starts[(a.own_graph ? run * a.graphs * (K + 1) : 0) + i];
#endif
  // Samples of the next step are fetched a step ahead; the lanes of each warp own the rows.
  const size_t sample0 = (size_t)run * a.T * a.nodes + first;  // of step 0; + t * nodes + k
  const int own = min(row, ROWS - 1);
  float bias = a.bias[(size_t)(run * a.nodes + first) * M + own];
  float mean_bias = AVERAGE ? a.mean_bias[(size_t)(run * a.nodes + first) * M + own] : 0.f;
  for (int i = tid; i < 3 * K * DPAD; i += THREADS) xs[i] = 0.f;
  __syncthreads();
  if (!AHEAD)
    for (int i = tid; i < K * DIN; i += THREADS) xs[i / DIN * DPAD + i % DIN] = a.x[sample0 * DIN + i];
  float y = 0.f, w = 1.f, rate = 0.f;
  auto fetch = [&](int t) {
    const size_t at = sample0 + (size_t)t * a.nodes + own / M;
    y = a.y[at * M + own % M];
    if (WEIGHTED) w = a.w[at];
    rate = a.rate[NODE_RATE ? at : t];
  };
  fetch(0);
  __syncthreads();

  int slot = 0;
  for (int t = 0; t < a.T; ++t) {
    const float *xt = xs + slot * K * DPAD;
    const int next = slot == 2 ? 0 : slot + 1;
    const float *zt = a.x + (sample0 + (size_t)t * a.nodes) * S * a.F + col0 + tid;  // if AHEAD
    if (AHEAD && t + 1 < a.T) {
#pragma unroll
      for (int i = 0; i < K * S * R; ++i)
        if (col0 + i % R * THREADS + tid < a.F)
          asm volatile("prefetch.global.L2 [%0];" ::"l"(zt + ((size_t)a.nodes * S + i / R) * a.F + i % R * THREADS));
    }
    float x_next[X_EACH];
#pragma unroll
    for (int i = 0, j = tid; i < X_EACH; ++i, j += THREADS)
      x_next[i] = !AHEAD && t + 1 < a.T && j < K * DIN ? a.x[(sample0 + (size_t)(t + 1) * a.nodes) * DIN + j] : 0.f;
    float f[P2];
#pragma unroll
    for (int r = 0; r < P2; ++r) f[r] = 0.f;
    float psi[ROWS][GS], kept[WHOLE ? K : 1][GS];
#if DOKL_MIXING
    const int which = a.pre[t];
#endif
    for (int at = 0; at < R; at += G) {
      if (!WHOLE) mine = group(omega, base, a.F, col0, at);
#if DOKL_MIXING
      if (which >= 0) combine(theta, starts + which * (K + 1), pairs, at, tid, psi);
      else read(theta, at, tid, psi);
      if (AVERAGE && ATC && t > 0) average(mean, a.gain[t - 1], a.F, col0, at, psi);
      if (!WHOLE && which >= 0) write(theta, at, tid, psi);
#else
#pragma unroll
      for (int i = 0; i < ROWS * GS; ++i) psi[i / GS][i % GS] = held[i / GS][i % GS];
#endif
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float z[GS];
        if (AHEAD) given(mine, zt + (size_t)k * S * a.F, a.F, at, z);
        else features(mine, xt + k * DPAD, z);
#pragma unroll
        for (int i = 0; i < GS; ++i) {
          if (WHOLE) kept[k][i] = z[i];
#pragma unroll
          for (int o = 0; o < M; ++o) f[k * M + o] = fmaf(psi[k * M + o][i], z[i], f[k * M + o]);
        }
      }
    }
    const float sum = warp_rows(f);
    float *here = partial + (t & 1) * WARPS * P2;
    if (lane < P2) here[warp * P2 + lane] = sum;
#pragma unroll
    for (int i = 0, j = tid; i < X_EACH; ++i, j += THREADS)
      if (!AHEAD && j < K * DIN) xs[next * K * DPAD + j / DIN * DPAD + j % DIN] = x_next[i];
    __syncthreads();

    float total = sum_rows(here);
    if (WIDE) {
      // The blocks of this network tell each other their sums, each with the number of the step in
      // the same word, so that no further signal is needed; all add them up in the same order.
      unsigned long long *sums = a.meeting + ((size_t)(t & 1) * gridDim.x + learner * a.split) * P2;
      const unsigned tag = t + 1;
      if (warp == 0 && lane < ROWS) tell(sums + blockIdx.x % a.split * P2 + lane, tag, total);
      total = 0.f;
      if (row < ROWS)
        for (int i = tid / P2; i < a.split; i += THREADS / P2) total += hear(sums + i * P2 + row, tag);
#pragma unroll
      for (int off = P2; off < 32; off *= 2) total += __shfl_xor_sync(~0u, total, off);
      float *there = partial + (2 + (t & 1)) * WARPS * P2;
      if (lane < P2) there[warp * P2 + lane] = total;
      __syncthreads();
      total = sum_rows(there);
    }
    const float prediction = scale * total + c * bias;
    float pull = rate * slope(y, prediction, p), shrink = 1.f - rate * lam;
    if (WEIGHTED) {
      pull = w > 0.f ? w * pull : 0.f;
      shrink = w > 0.f ? shrink : 1.f;
    }
    bias -= pull * c;
    if (AVERAGE) mean_bias += a.gain[t] * (bias - mean_bias);
    if (warp == 0 && lane < ROWS && col0 == 0) a.f[(sample0 + (size_t)t * a.nodes) * M + lane] = prediction;
    if (lane < P2) moves[warp * P2 + lane] = make_float2(shrink, pull * scale);
    __syncwarp();
    if (t + 1 < a.T) fetch(t + 1);

    for (int at = 0; at < R; at += G) {
      if (!WHOLE) mine = group(omega, base, a.F, col0, at);
      if (MIXING && !WHOLE) read(theta, at, tid, psi);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float z[GS];
        if (WHOLE) {
#pragma unroll
          for (int i = 0; i < GS; ++i) z[i] = kept[k][i];
        } else {
          if (AHEAD) given(mine, zt + (size_t)k * S * a.F, a.F, at, z);
        else features(mine, xt + k * DPAD, z);
        }
#pragma unroll
        for (int o = 0; o < M; ++o) {
          const float2 move = moves[warp * P2 + k * M + o];
#pragma unroll
          for (int i = 0; i < GS; ++i) {
            float &v = MIXING ? psi[k * M + o][i] : held[k * M + o][MIXING ? 0 : i];
            v = fmaf(-move.y, z[i], SHRINK ? move.x * v : v);
          }
        }
      }
#if DOKL_MIXING
      write(theta, at, tid, psi);
      if (AVERAGE && !ATC) average(mean, a.gain[t], a.F, col0, at, psi);
#else
      if (AVERAGE) {
#pragma unroll
        for (int i = 0; i < ROWS * GS; ++i) psi[i / GS][i % GS] = held[i / GS][i % GS];
        average(mean, a.gain[t], a.F, col0, at, psi);
      }
#endif
    }
    __syncwarp();  // `moves` is free again
    slot = next;
  }

  float psi[ROWS][GS];
  for (int at = 0; at < R; at += G) {
#if DOKL_MIXING
    const int which = a.pre[a.T];
    if (which >= 0) combine(theta, starts + which * (K + 1), pairs, at, tid, psi);
    else read(theta, at, tid, psi);
    if (AVERAGE && ATC && a.T > 0) average(mean, a.gain[a.T - 1], a.F, col0, at, psi);
#else
#pragma unroll
    for (int i = 0; i < ROWS * GS; ++i) psi[i / GS][i % GS] = held[i / GS][i % GS];
#endif
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int i = 0; i < GS; ++i) {
        const int col = col0 + (at + i % G) * THREADS + tid;
        if (col < a.F) a.theta_out[vectors + (size_t)(r * S + i / G) * a.F + col] = psi[r][i];
      }
  }
  if (warp == 0 && lane < ROWS && col0 == 0) {
    a.bias_out[(size_t)(run * a.nodes + first) * M + lane] = bias;
    if (AVERAGE) a.mean_bias_out[(size_t)(run * a.nodes + first) * M + lane] = mean_bias;
  }
}

template <typename T>
static T *data(ffi::AnyBuffer b) { return reinterpret_cast<T *>(b.untyped_data()); }

static ffi::Error Launch(cudaStream_t stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  auto arg = [&](int i) { return *in.get<ffi::AnyBuffer>(i); };
  auto ret = [&](int i) { return **out.get<ffi::AnyBuffer>(i); };
  auto floats = [&](int i) { return data<float>(arg(i)); };
  Args a{floats(0), floats(1), floats(2), floats(3), floats(4), floats(5), floats(6), floats(7),
         floats(8), floats(9), floats(10), floats(11), data<int>(arg(12)), data<int>(arg(13)),
         data<int4>(arg(14)), data<float>(ret(0)), data<float>(ret(1)), data<float>(ret(2)),
         data<float>(ret(3)), data<float>(ret(4)), data<unsigned long long>(ret(5))};
  const auto theta = arg(3).dimensions(), x = arg(7).dimensions();         // (runs, nodes, M, S, F)
  const auto starts = arg(13).dimensions(), pairs = arg(14).dimensions();  // (runs or 1, graphs, K + 1)
  a.F = theta[4], a.T = x[1], a.nodes = theta[1];
  a.graphs = MIXING ? starts[1] : 0, a.n_pairs = MIXING ? pairs[1] : 0;
  a.own_map = arg(2).dimensions()[0] > 1, a.own_graph = starts[0] > 1;
  a.split = WIDE ? (a.F + COLS - 1) / COLS : 1;
  const int learners = theta[0] * (a.nodes / K);
  const size_t bytes = 4 * (3 * K * DPAD + 2 * WARPS * P2 + SUMS + 4 * a.n_pairs + (a.graphs * (K + 1) + 3) / 4 * 4 +
                            (MIXING ? ROWS * S * COLS : 0));
  cudaError_t error = cudaFuncSetAttribute(sweep, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error == cudaSuccess && WIDE) {  // all blocks must run at once, since they wait for each other
    error = cudaMemsetAsync(a.meeting, 0, ret(5).size_bytes(), stream);
    void *args[] = {&a};
    if (error == cudaSuccess)
      error = cudaLaunchCooperativeKernel((void *)sweep, dim3(learners * a.split), dim3(THREADS), args, bytes, stream);
  } else if (error == cudaSuccess) {
    sweep<<<learners, THREADS, bytes, stream>>>(a);
    error = cudaGetLastError();
  }
  return error == cudaSuccess ? ffi::Error::Success() : ffi::Error::Internal(cudaGetErrorString(error));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(DoklSweep, Launch,
                              ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>().RemainingArgs().RemainingRets());
