/* What all files share: vectors of 16 lanes, bf16, exponentials, the pool of threads.
 *
 * Every sum runs in an order fixed by the shapes of one row or one sequence, never by the batch, the
 * place in it or the number of threads. That is what makes results the same to the bit. The files are compiled with
 * -ffp-contract=off, so that a product and a sum are fused where vfma says so and nowhere else.
 */
#ifndef CK_COMMON_H
#define CK_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#define CK_AVX512 1
#elif defined(__FMA__)
#include <immintrin.h>
#endif
#if defined(CK_AVX512) && defined(__AVX512BF16__) && defined(__linux__) && !defined(CK_NO_AMX)
#define CK_AMX 1
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64)))

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint16_t bf16;

enum { CK_F32 = 0, CK_BF16 = 1 };
enum { CK_OK = 0, CK_BAD_PAGE = 1, CK_NO_MEMORY = 2 };

/* pool.c */
typedef void (*ck_task)(void *context, int64_t index);
void ck_parallel(ck_task task, void *context, int64_t count);
int ck_threads(void);
/* A buffer of this thread that lives until the next call with the same slot; NULL when out of memory. */
void *ck_scratch(int slot, size_t bytes);

/* amx.c */
int ck_amx_usable(void);

INLINE vf vload(const float *p) { vf v; memcpy(&v, p, 64); return v; }
INLINE void vstore(float *p, vf v) { memcpy(p, &v, 64); }
INLINE vf splat(float x) { return x - (vf){0}; }
INLINE vf vselect(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

/* a * b + c, rounded once where the processor can. */
INLINE vf vfma(vf a, vf b, vf c) {
#if defined(CK_AVX512)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  typedef union { vf all; __m256 half[2]; } halves;
  halves x = {a}, y = {b}, z = {c};
  z.half[0] = _mm256_fmadd_ps(x.half[0], y.half[0], z.half[0]);
  z.half[1] = _mm256_fmadd_ps(x.half[1], y.half[1], z.half[1]);
  return z.all;
#elif defined(__aarch64__)
  for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}

#ifdef CK_AVX512
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
#else
INLINE vf vmax(vf a, vf b) { return vselect(a > b, a, b); }
#endif

/* 2^x: relative error 2e-8 and exactly 1 for 0; 0 for -inf and where the result would be subnormal. */
INLINE vf vexp2(vf x) {
#ifdef CK_AVX512
  vf r = (vf)_mm512_reduce_ps((__m512)x, 0);
  vf n = x - r;
#else
  const vf magic = splat(12582912.0f); /* 1.5 * 2^23: its last bits count whole numbers */
  vi dead = x < splat(-126.0f);
  vf t = vselect(dead, splat(0.0f), x) + magic;
  vf r = vselect(dead, splat(0.0f), x) - (t - magic);
#endif
  vf p = splat(1.534580803e-4f);
  p = vfma(p, r, splat(1.339993090e-3f));
  p = vfma(p, r, splat(9.618489072e-3f));
  p = vfma(p, r, splat(5.550328642e-2f));
  p = vfma(p, r, splat(2.402264625e-1f));
  p = vfma(p, r, splat(6.931471825e-1f));
  p = vfma(p, r, splat(1.0f));
#ifdef CK_AVX512
  return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  return (vf)((vi)((vu)p + ((vu)t << 23)) & ~dead);
#endif
}

enum { GATE_SILU, GATE_GELU_TANH };

INLINE vf tanh_of(vf x) { /* 1 - 2 / (e^2x + 1) */
  vf limit = splat(10.0f);
  x = vselect(x > limit, limit, vselect(x < -limit, -limit, x));
  return splat(1.0f) - splat(2.0f) / (vexp2(x * splat(2.885390082f)) + splat(1.0f));
}

INLINE vf gate(vf x, int64_t kind) {
  if (kind == GATE_SILU) {
    vf low = vmax(x, splat(-80.0f));
    return x / (splat(1.0f) + vexp2(low * splat(-1.442695041f)));
  }
  vf inner = splat(0.7978845608f) * vfma(splat(0.044715f) * x * x, x, x);
  return splat(0.5f) * x * (splat(1.0f) + tanh_of(inner));
}

INLINE float widen(bf16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

/* Rounds to nearest, ties to even; a NaN stays one. */
INLINE bf16 narrow(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16)((bits >> 16) | 0x40);
  return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

INLINE vf widen16(const bf16 *p) {
#ifdef CK_AVX512
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
#else
  typedef uint16_t v16 __attribute__((vector_size(32)));
  v16 x;
  memcpy(&x, p, 32);
  return (vf)(__builtin_convertvector(x, vu) << 16);
#endif
}

INLINE void narrow16(bf16 *p, vf v) {
#if defined(CK_AVX512) && defined(__AVX512BF16__)
  __m256bh x = _mm512_cvtneps_pbh((__m512)v);
  memcpy(p, &x, 32);
#elif defined(CK_AVX512)
  __m512i bits = (__m512i)v;
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
#else
  float f[LANES];
  vstore(f, v);
  for (int i = 0; i < LANES; i++) p[i] = narrow(f[i]);
#endif
}

/* 16 by 16 transpose. */
#ifdef CK_AVX512
INLINE void transpose_words(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

INLINE void transpose(vf r[16]) { transpose_words((__m512i *)r); }
#else
INLINE void transpose(vf r[16]) {
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < i; j++) {
      float x = r[i][j];
      r[i][j] = r[j][i];
      r[j][i] = x;
    }
}
#endif

#endif
