/* The core of attention on the matrix unit: bf16 in, sums in floats. See attention.h.
 *
 * Scores are computed as keys times queries, so that a tile of them holds one row in each lane: nothing is ever
 * reduced across lanes, and two rows of it, rounded and interleaved, are one row of the tile of weights.
 */
#include "attention.h"
#include "amx.h"

#ifdef CK_AMX

/* [dim / 32][pair of elements][lane][2] */
void ck_amx_pack_query(row_block *b, int64_t strip, const void *const rows[LANES]) {
  char *out = (char *)b->query + strip * b->dim * LANES * 2;
  for (int64_t d = 0; d < b->dim; d += 32) {
    __m512i r[16];
    for (int lane = 0; lane < LANES; lane++) r[lane] = _mm512_loadu_si512((const bf16 *)rows[lane] + d);
    transpose_words(r);
    for (int i = 0; i < 16; i++) _mm512_store_si512(out + d * LANES * 2 + 64 * i, r[i]);
  }
}

/* [dim][TILE] */
INLINE void turn_values(bf16 *columns, const void *const rows[TILE], int64_t dim) {
  for (int64_t j = 0; j < TILE; j += 32)
    for (int64_t d = 0; d < dim; d += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; i++) {
        __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const bf16 *)rows[j + 2 * i] + d)));
        __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const bf16 *)rows[j + 2 * i + 1] + d)));
        r[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
      }
      transpose_words(r);
      for (int i = 0; i < 16; i++) _mm512_store_si512(columns + (d + i) * TILE + j, r[i]);
    }
}

/* [dim / 16][pair of keys][element][2]; of 32 elements the fours with even number come first. */
INLINE void pair_values(bf16 *pairs, const void *const rows[TILE], int64_t dim) {
  for (int64_t d = 0; d < dim; d += 32)
    for (int64_t j = 0; j < TILE; j += 2) {
      __m512i even = _mm512_loadu_si512((const bf16 *)rows[j] + d), odd = _mm512_loadu_si512((const bf16 *)rows[j + 1] + d);
      _mm512_store_si512(pairs + d * TILE + j * 16, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(pairs + (d + 16) * TILE + j * 16, _mm512_unpackhi_epi16(even, odd));
    }
}

void ck_amx_load(key_tile *tile, int64_t dim, int is_narrow) {
  for (int64_t i = 0; i < TILE; i++)
    for (int64_t d = 0; d < dim; d += 32)
      _mm512_store_si512(tile->key_rows + i * dim + d, _mm512_loadu_si512((const bf16 *)tile->key[i] + d));
  if (is_narrow) pair_values(tile->value_columns, tile->value, dim);
  else turn_values(tile->value_columns, tile->value, dim);
}

/* 2^x to 1e-4, which is finer than the bf16 that it is rounded to. */
INLINE __m512 rough_exp2(__m512 x) {
  __m512 r = _mm512_reduce_ps(x, 1); /* x less its floor; 0 for -inf */
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.07802452f), r, _mm512_set1_ps(0.22606716f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69583356f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999252f));
  return _mm512_scalef_ps(p, x);
}

/* Scores to weights: [TILE / 2][lane][2]; meanwhile the next tile is asked for. */
INLINE void weigh(row_block *b, int64_t strip, float *score, bf16 *weights, int32_t start, const key_tile *ahead) {
  static const uint16_t order[32] ALIGNED = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                             8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i interleave = _mm512_load_si512(order);
  hide_keys(score, b, strip, start);
  vf scale = splat(b->scale);
  __m512 top = (__m512)raise_maximum(b, strip, highest(score) * scale);
  __m512 even = _mm512_setzero_ps(), odd = even;
  for (int j = 0; j < TILE; j += 2) {
    __m512 x = rough_exp2(_mm512_fmsub_ps(_mm512_load_ps(score + j * LANES), (__m512)scale, top));
    __m512 y = rough_exp2(_mm512_fmsub_ps(_mm512_load_ps(score + (j + 1) * LANES), (__m512)scale, top));
    if (ahead) ask_ahead(ahead, j, j + 2);
    even = _mm512_add_ps(even, x);
    odd = _mm512_add_ps(odd, y);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    _mm512_store_si512(weights + j * LANES, _mm512_permutexvar_epi16(interleave, both));
  }
  float *weight = b->weight + strip * LANES;
  vstore(weight, vload(weight) + ((vf)even + (vf)odd));
}

INLINE void two_scores(const row_block *b, int64_t strip, const bf16 *keys, float *score) {
  int64_t dim = b->dim;
  const char *a = (const char *)b->query + strip * dim * LANES * 2, *c = a + dim * LANES * 2;
  for (int j = 0; j < TILE; j += 32) {
    TZERO(0);
    TZERO(1);
    TZERO(2);
    TZERO(3);
    for (int64_t d = 0; d < dim; d += 32) {
      TLOAD(4, keys + j * dim + d, 2 * dim);
      TLOAD(6, a + d * LANES * 2, 64);
      TLOAD(7, c + d * LANES * 2, 64);
      TLOAD(5, keys + (j + 16) * dim + d, 2 * dim);
      TDP(0, 4, 6);
      TDP(1, 4, 7);
      TDP(2, 5, 6);
      TDP(3, 5, 7);
    }
    TSTORE(0, score + j * LANES, 64);
    TSTORE(1, score + (TILE + j) * LANES, 64);
    TSTORE(2, score + (j + 16) * LANES, 64);
    TSTORE(3, score + (TILE + j + 16) * LANES, 64);
  }
}

INLINE void one_score(const row_block *b, int64_t strip, const bf16 *keys, float *score) {
  int64_t dim = b->dim;
  const char *a = (const char *)b->query + strip * dim * LANES * 2;
  for (int j = 0; j < TILE; j += 32) {
    TZERO(0);
    TZERO(2);
    for (int64_t d = 0; d < dim; d += 32) {
      TLOAD(4, keys + j * dim + d, 2 * dim);
      TLOAD(6, a + d * LANES * 2, 64);
      TLOAD(5, keys + (j + 16) * dim + d, 2 * dim);
      TDP(0, 4, 6);
      TDP(2, 5, 6);
    }
    TSTORE(0, score + j * LANES, 64);
    TSTORE(2, score + (j + 16) * LANES, 64);
  }
}

INLINE void two_sums(row_block *b, int64_t strip, const bf16 *columns, const bf16 *weights) {
  float *x = b->sum + strip * b->dim * LANES, *y = x + b->dim * LANES;
  for (int64_t d = 0; d < b->dim; d += 32) {
    TLOAD(0, x + d * LANES, 64);
    TLOAD(1, y + d * LANES, 64);
    TLOAD(2, x + (d + 16) * LANES, 64);
    TLOAD(3, y + (d + 16) * LANES, 64);
    for (int j = 0; j < TILE; j += 32) {
      TLOAD(4, columns + d * TILE + j, 2 * TILE);
      TLOAD(6, weights + j * LANES, 64);
      TLOAD(7, weights + (TILE + j) * LANES, 64);
      TLOAD(5, columns + (d + 16) * TILE + j, 2 * TILE);
      TDP(0, 4, 6);
      TDP(1, 4, 7);
      TDP(2, 5, 6);
      TDP(3, 5, 7);
    }
    TSTORE(0, x + d * LANES, 64);
    TSTORE(1, y + d * LANES, 64);
    TSTORE(2, x + (d + 16) * LANES, 64);
    TSTORE(3, y + (d + 16) * LANES, 64);
  }
}

INLINE void one_sum(row_block *b, int64_t strip, const bf16 *columns, const bf16 *weights) {
  float *x = b->sum + strip * b->dim * LANES;
  for (int64_t d = 0; d < b->dim; d += 32) {
    TLOAD(0, x + d * LANES, 64);
    TLOAD(2, x + (d + 16) * LANES, 64);
    for (int j = 0; j < TILE; j += 32) {
      TLOAD(4, columns + d * TILE + j, 2 * TILE);
      TLOAD(6, weights + j * LANES, 64);
      TLOAD(5, columns + (d + 16) * TILE + j, 2 * TILE);
      TDP(0, 4, 6);
      TDP(2, 5, 6);
    }
    TSTORE(0, x + d * LANES, 64);
    TSTORE(2, x + (d + 16) * LANES, 64);
  }
}

/* Narrow: weights by row times pairs of values. */
INLINE void row_sums(row_block *b, const bf16 *pairs, const bf16 *weights) {
  bf16 turned[TILE * LANES] ALIGNED; /* [lane][TILE] */
  for (int j = 0; j < TILE; j += 32) {
    __m512i r[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(weights + j * LANES + i * 32);
    transpose_words(r);
    for (int i = 0; i < 16; i++) _mm512_store_si512(turned + i * TILE + j, r[i]);
  }
  for (int64_t d = 0; d < b->dim; d += 32) {
    TLOAD(0, b->row_sum + d, 4 * b->dim);
    TLOAD(1, b->row_sum + d + 16, 4 * b->dim);
    for (int j = 0; j < TILE; j += 32) {
      TLOAD(4, turned + j, 2 * TILE);
      TLOAD(6, pairs + d * TILE + j * 16, 64);
      TLOAD(7, pairs + (d + 16) * TILE + j * 16, 64);
      TDP(0, 4, 6);
      TDP(1, 4, 7);
    }
    TSTORE(0, b->row_sum + d, 4 * b->dim);
    TSTORE(1, b->row_sum + d + 16, 4 * b->dim);
  }
}

void ck_amx_step(row_block *b, const key_tile *tile, int32_t start) {
  float score[2 * TILE * LANES] ALIGNED;
  bf16 weights[2 * TILE * LANES] ALIGNED;
  for (int64_t s = 0; s < b->strips; s += 2) {
    int pair = s + 1 < b->strips;
    if (!is_seen(b, s, pair, start)) continue;
    if (pair) {
      two_scores(b, s, tile->key_rows, score);
      weigh(b, s, score, weights, start, NULL);
      weigh(b, s + 1, score + TILE * LANES, weights + TILE * LANES, start, NULL);
      two_sums(b, s, tile->value_columns, weights);
    } else {
      one_score(b, s, tile->key_rows, score);
      weigh(b, s, score, weights, start, b->is_narrow ? tile : NULL);
      if (b->is_narrow) row_sums(b, tile->value_columns, weights);
      else one_sum(b, s, tile->value_columns, weights);
    }
  }
}

/* Brings the sums of a split from [lane][dim], elements as pair_values left them, to [dim][lane]. */
void ck_amx_end(row_block *b) {
  if (!b->is_narrow) return;
  for (int64_t d = 0; d < b->dim; d += 16) {
    vf v[LANES];
    for (int r = 0; r < LANES; r++) v[r] = vload(b->row_sum + r * b->dim + d);
    transpose(v);
    for (int64_t i = 0; i < LANES; i++) {
      int64_t element = d / 32 * 32 + (d % 32 ? 4 : 0) + i / 4 * 8 + i % 4;
      vstore(b->sum + element * LANES, v[i]);
    }
  }
}

#else
void ck_amx_pack_query(row_block *b, int64_t strip, const void *const rows[LANES]) { (void)b, (void)strip, (void)rows; }
void ck_amx_load(key_tile *tile, int64_t dim, int is_narrow) { (void)tile, (void)dim, (void)is_narrow; }
void ck_amx_step(row_block *b, const key_tile *tile, int32_t start) { (void)b, (void)tile, (void)start; }
void ck_amx_end(row_block *b) { (void)b; }
#endif
