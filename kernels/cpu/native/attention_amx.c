/* The core of attention on the matrix unit: bf16 in, sums in floats. See attention.h.
 *
 * Scores are computed as keys times queries, so that a tile of them holds one row in each lane: nothing is ever
 * reduced across lanes, and two rows of it, rounded and interleaved, are one row of the tile of weights.
 */
#include "attention.h"
#include "amx.h"

#ifdef CK_AMX

/* [dim / 32][pair of elements][lane][2]; for each of the heads that share the lanes, with zeros in those of others. */
void ck_amx_pack_query(row_block *b, int64_t strip, const void *const rows[LANES]) {
  char *out = (char *)b->query + strip * b->dim * LANES * 2;
  int64_t each = b->heads > 1 ? b->rows / b->heads : LANES;
  for (int64_t h = 0; h < b->heads; h++)
    for (int64_t d = 0; d < b->dim; d += 32, out += 64 * LANES) {
      __m512i r[16];
      for (int64_t lane = 0; lane < LANES; lane++)
        r[lane] = lane / each == h ? _mm512_loadu_si512((const bf16 *)rows[lane] + d) : _mm512_setzero_si512();
      transpose_words(r);
      for (int i = 0; i < 16; i++) _mm512_store_si512(out + 64 * i, r[i]);
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
INLINE void pair_values(bf16 *pairs, const char *first, const char *second, int64_t j, int64_t dim) {
  for (int64_t d = 0; d < dim; d += 32) {
    __m512i even = _mm512_loadu_si512((const bf16 *)first + d), odd = _mm512_loadu_si512((const bf16 *)second + d);
    _mm512_store_si512(pairs + d * TILE + j * 16, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(pairs + (d + 16) * TILE + j * 16, _mm512_unpackhi_epi16(even, odd));
  }
}

INLINE void copy_keys(bf16 *rows, const void *const keys[TILE], int64_t dim) {
  for (int64_t i = 0; i < TILE; i++)
    for (int64_t d = 0; d < dim; d += 32)
      _mm512_store_si512(rows + i * dim + d, _mm512_loadu_si512((const bf16 *)keys[i] + d));
}

void ck_amx_load(key_tile *tile, int64_t dim) {
  copy_keys(tile->key_rows, tile->key, dim);
  turn_values(tile->value_columns, tile->value, dim);
}

void ck_amx_narrow_load(key_tile *tile, int64_t dim, int64_t head) {
  int64_t at = head * TILE * dim;
  copy_keys(tile->key_rows + at, tile->key, dim);
  for (int64_t j = 0; j < TILE; j += 2) pair_values(tile->value_columns + at, tile->value[j], tile->value[j + 1], j, dim);
}

/* 2^x to 1e-4, which is finer than the bf16 that it is rounded to. */
INLINE __m512 rough_exp2(__m512 x) {
  __m512 r = _mm512_reduce_ps(x, 1); /* x less its floor; 0 for -inf */
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.07802452f), r, _mm512_set1_ps(0.22606716f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69583356f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999252f));
  return _mm512_scalef_ps(p, x);
}

/* Asks for the keys (rows from 0 on) or values (from TILE on) of one token of the next tile, of all heads of the block. The narrow core
 * does so a few at a time, all through its work: memory is then busy while it computes. Only as far as the outer
 * cache, since more requests can be under way to that one. */
INLINE void ask_for_row(const key_tile *tile, int row) {
  if (!tile->next_bytes) return;
  const char *at = row < TILE ? tile->next_keys[row / RUN] + row % RUN * tile->next_key_token
                              : tile->next_values[(row - TILE) / RUN] + row % RUN * tile->next_value_token;
  for (int64_t i = 0; i < tile->next_bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/* Scores to weights: [TILE / 2][lane][2]. */
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
    if (ahead) ask_for_row(ahead, TILE / 2 + j / 2);
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

/* Narrow: tiles 4 to 7 have as many rows as a head. Two runs of keys at a time, against the queries of all heads. */
INLINE void narrow_scores(const row_block *b, const key_tile *tile, float *score) {
  int64_t dim = b->dim, steps = b->heads * dim / 32, per_step = (TILE / 4 + steps - 1) / steps;
  for (int i = 0; i < TILE / RUN; i += 2) {
    const char *query = b->query;
    int asked = i * TILE / 8, until = asked + TILE / 4;
    TZERO(0);
    TZERO(1);
    for (int64_t h = 0; h < b->heads; h++)
      for (int64_t d = 0; d < dim; d += 32, query += 64 * LANES) {
        TLOAD(3, query, 64);
        TLOAD(2, tile->keys[i] + h * tile->key_head + 2 * d, tile->key_token);
        TDP(0, 2, 3);
        TLOAD(2, tile->keys[i + 1] + h * tile->key_head + 2 * d, tile->key_token);
        TDP(1, 2, 3);
        for (int64_t n = 0; n < per_step && asked < until; n++) ask_for_row(tile, asked++);
      }
    TSTORE(0, score + RUN * i * LANES, 64);
    TSTORE(1, score + RUN * (i + 1) * LANES, 64);
  }
}

INLINE void pair_tile(const row_block *b, key_tile *tile, const int64_t dim) {
  for (int64_t j = 0; j < TILE; j += 2) {
    const char *value = tile->values[j / RUN] + j % RUN * tile->value_token;
    bf16 *pairs = tile->value_columns;
    for (int64_t h = 0; h < b->heads; h++, value += tile->value_head, pairs += TILE * dim)
      pair_values(pairs, value, value + tile->value_token, j, dim);
    ask_for_row(tile, TILE + j);
    ask_for_row(tile, TILE + j + 1);
  }
}

/* Weights by row times pairs of values. */
INLINE void row_sums(row_block *b, const bf16 *pairs, const bf16 *weights) {
  bf16 turned[TILE * LANES] ALIGNED; /* [lane][TILE] */
  int64_t rows = b->rows / b->heads;
  for (int j = 0; j < TILE; j += 32) {
    __m512i r[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(weights + j * LANES + i * 32);
    transpose_words(r);
    for (int i = 0; i < 16; i++) _mm512_store_si512(turned + i * TILE + j, r[i]);
  }
  for (int64_t h = 0; h < b->heads; h++) {
    float *sum = b->row_sum + h * rows * b->dim;
    TLOAD(6, turned + h * rows * TILE, 2 * TILE);
    TLOAD(7, turned + h * rows * TILE + 32, 2 * TILE);
    for (int64_t d = 0; d < b->dim; d += 32, pairs += TILE * 32) {
      TLOAD(4, sum + d, 4 * b->dim);
      TLOAD(5, sum + d + 16, 4 * b->dim);
      TLOAD(0, pairs, 64);
      TLOAD(1, pairs + TILE * 16, 64);
      TDP(4, 6, 0);
      TDP(5, 6, 1);
      TLOAD(2, pairs + TILE * 8, 64);
      TLOAD(3, pairs + TILE * 24, 64);
      TDP(4, 7, 2);
      TDP(5, 7, 3);
      TSTORE(4, sum + d, 4 * b->dim);
      TSTORE(5, sum + d + 16, 4 * b->dim);
    }
  }
}

void ck_amx_narrow_step(row_block *b, key_tile *tile, int32_t start) {
  float score[TILE * LANES] ALIGNED;
  bf16 weights[TILE * LANES] ALIGNED;
  if (!is_seen(b, 0, 0, start)) return;
  narrow_scores(b, tile, score);
  weigh(b, 0, score, weights, start, tile);
  if (tile->is_paired)
    for (int row = TILE; row < 2 * TILE; row++) ask_for_row(tile, row);
  else if (b->dim == 64) pair_tile(b, tile, 64);
  else if (b->dim == 128) pair_tile(b, tile, 128);
  else pair_tile(b, tile, b->dim);
  row_sums(b, tile->value_columns, weights);
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
      weigh(b, s, score, weights, start, NULL);
      one_sum(b, s, tile->value_columns, weights);
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
void ck_amx_load(key_tile *tile, int64_t dim) { (void)tile, (void)dim; }
void ck_amx_narrow_load(key_tile *tile, int64_t dim, int64_t head) { (void)tile, (void)dim, (void)head; }
void ck_amx_narrow_step(row_block *b, key_tile *tile, int32_t start) { (void)b, (void)tile, (void)start; }
void ck_amx_step(row_block *b, const key_tile *tile, int32_t start) { (void)b, (void)tile, (void)start; }
void ck_amx_end(row_block *b) { (void)b; }
#endif
