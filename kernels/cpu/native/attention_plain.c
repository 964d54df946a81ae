/* The core of attention that needs nothing but vectors of floats. See attention.h. */
#include "attention.h"

#ifdef CK_AVX512
#define GROUP 8 /* accumulators a strip */
#else
#define GROUP 2
#endif

int ck_plain_is_narrow(int64_t rows, int64_t dim) { return rows <= NARROW && dim % LANES == 0; }

void ck_plain_pack_query(row_block *b, int64_t strip, const void *const rows[LANES], int64_t type) {
  float *q = (float *)b->query + strip * b->dim * LANES;
  for (int lane = 0; lane < LANES; lane++)
    for (int64_t d = 0; d < b->dim; d++) {
      float x = type == CK_BF16 ? widen(((const bf16 *)rows[lane])[d]) : ((const float *)rows[lane])[d];
      /* narrow: [lane][dim] */
      q[b->is_narrow ? lane * b->dim + d : d * LANES + lane] = b->scale * x;
    }
}

void ck_plain_load(key_tile *tile, int64_t dim, int64_t type) {
  if (type == CK_F32) return;
  for (int64_t i = 0; i < TILE; i++) {
    float *k = tile->plain + i * dim, *v = k + TILE * dim;
    const bf16 *key = tile->key[i], *value = tile->value[i];
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) vstore(k + d, widen16(key + d)), vstore(v + d, widen16(value + d));
    for (; d < dim; d++) k[d] = widen(key[d]), v[d] = widen(value[d]);
    tile->key[i] = k, tile->value[i] = v;
  }
}

/* The sum of the weights of a row: 16 chains, folded in halves. */
INLINE vf fold_chains(vf chain[LANES]) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) chain[i] += chain[i + half];
  return chain[0];
}

/* Wide: a lane a row; the elements of keys and values are the same for all lanes. */

INLINE void wide_scores(float *score, const float *query, int64_t dim, const int strips, const key_tile *tile) {
  for (int j = 0; j < TILE; j += GROUP) {
    vf sum[GROUP][2];
    const float *key[GROUP];
    for (int u = 0; u < GROUP; u++) sum[u][0] = sum[u][1] = (vf){0}, key[u] = tile->key[j + u];
    for (int64_t d = 0; d < dim; d++) {
      vf a = vload(query + d * LANES), b = strips == 2 ? vload(query + (dim + d) * LANES) : a;
#pragma GCC unroll 8
      for (int u = 0; u < GROUP; u++) {
        vf k = splat(key[u][d]);
        sum[u][0] = vfma(k, a, sum[u][0]);
        if (strips == 2) sum[u][1] = vfma(k, b, sum[u][1]);
      }
    }
    for (int u = 0; u < GROUP; u++) {
      vstore(score + (j + u) * LANES, sum[u][0]);
      if (strips == 2) vstore(score + (TILE + j + u) * LANES, sum[u][1]);
    }
  }
}

INLINE void wide_values(float *sum, const float *weight, int64_t dim, const int strips, const key_tile *tile, int64_t d,
                        const int group) {
  vf part[GROUP][2];
  for (int u = 0; u < group; u++) {
    part[u][0] = vload(sum + (d + u) * LANES);
    part[u][1] = strips == 2 ? vload(sum + (dim + d + u) * LANES) : part[u][0];
  }
  for (int j = 0; j < TILE; j++) {
    vf a = vload(weight + j * LANES), b = strips == 2 ? vload(weight + (TILE + j) * LANES) : a;
    const float *value = (const float *)tile->value[j] + d;
#pragma GCC unroll 8
    for (int u = 0; u < group; u++) {
      vf v = splat(value[u]);
      part[u][0] = vfma(v, a, part[u][0]);
      if (strips == 2) part[u][1] = vfma(v, b, part[u][1]);
    }
  }
  for (int u = 0; u < group; u++) {
    vstore(sum + (d + u) * LANES, part[u][0]);
    if (strips == 2) vstore(sum + (dim + d + u) * LANES, part[u][1]);
  }
}

INLINE void wide_step(row_block *b, int64_t strip, const int strips, const key_tile *tile, int32_t start) {
  float score[2 * TILE * LANES] ALIGNED;
  int64_t dim = b->dim, d = 0;
  wide_scores(score, (const float *)b->query + strip * dim * LANES, dim, strips, tile);
  for (int s = 0; s < strips; s++) {
    float *p = score + s * TILE * LANES;
    hide_keys(p, b, strip + s, start);
    vf top = raise_maximum(b, strip + s, highest(p));
    vf chain[LANES];
    for (int u = 0; u < LANES; u++) chain[u] = (vf){0};
    for (int j = 0; j < TILE; j += LANES)
#pragma GCC unroll 16
      for (int u = 0; u < LANES; u++) {
        vf x = vexp2(vload(p + (j + u) * LANES) - top);
        vstore(p + (j + u) * LANES, x);
        chain[u] += x;
      }
    add_weight(b, strip + s, fold_chains(chain));
  }
  float *sum = b->sum + strip * dim * LANES;
  for (; d + GROUP <= dim; d += GROUP) wide_values(sum, score, dim, strips, tile, d, GROUP);
  for (; d < dim; d++) wide_values(sum, score, dim, strips, tile, d, 1);
}

static __attribute__((noinline)) void one_strip(row_block *b, int64_t strip, const key_tile *tile, int32_t start) {
  wide_step(b, strip, 1, tile, start);
}

static __attribute__((noinline)) void two_strips(row_block *b, int64_t strip, const key_tile *tile, int32_t start) {
  wide_step(b, strip, 2, tile, start);
}

/* Narrow: 16 keys are the lanes of the scores, 16 elements those of the sums. */

INLINE void narrow_scores(float *score, const float *query, int64_t dim, const int rows, const key_tile *tile) {
  for (int j = 0; j < TILE; j += LANES) {
    vf sum[4];
    for (int r = 0; r < rows; r++) sum[r] = (vf){0};
    for (int64_t d = 0; d < dim; d += LANES) {
      vf key[LANES];
      for (int i = 0; i < LANES; i++) key[i] = vload((const float *)tile->key[j + i] + d);
      transpose(key);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++)
        for (int r = 0; r < rows; r++) sum[r] = vfma(key[i], splat(query[r * dim + d + i]), sum[r]);
    }
    for (int r = 0; r < rows; r++) vstore(score + r * TILE + j, sum[r]);
  }
}

/* Elements [d, d + 16 * parts) of the sums of some rows. */
INLINE void narrow_values(float *sum, const float *weight, int64_t dim, const int rows, const int parts,
                          const key_tile *tile, int64_t d) {
  vf part[4][4];
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < parts; i++) part[r][i] = vload(sum + r * dim + d + i * LANES);
  for (int j = 0; j < TILE; j++) {
    const float *value = (const float *)tile->value[j] + d;
    vf v[4];
    for (int i = 0; i < parts; i++) v[i] = vload(value + i * LANES);
    for (int r = 0; r < rows; r++) {
      vf w = splat(weight[r * TILE + j]);
      for (int i = 0; i < parts; i++) part[r][i] = vfma(v[i], w, part[r][i]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < parts; i++) vstore(sum + r * dim + d + i * LANES, part[r][i]);
}

INLINE void narrow_sums(row_block *b, const float *weight, int first, const int rows, const key_tile *tile) {
  float *sum = b->row_sum + first * b->dim;
  int64_t d = 0;
  for (; d + 4 * LANES <= b->dim; d += 4 * LANES) narrow_values(sum, weight, b->dim, rows, 4, tile, d);
  for (; d < b->dim; d += LANES) narrow_values(sum, weight, b->dim, rows, 1, tile, d);
}

static void hide_from_row(float *score, const row_block *b, int row, int32_t start) {
  vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int j = 0; j < TILE; j += LANES) {
    vi key = lane + (start + j);
    vi seen = (key >= b->from[row]) & (key < b->to[row]);
    vstore(score + j, vselect(seen, vload(score + j), splat(-__builtin_inff())));
  }
}

INLINE float fold_lanes(vf v, int is_max) {
  float x[LANES];
  vstore(x, v);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) x[i] = is_max ? (x[i] > x[i + half] ? x[i] : x[i + half]) : x[i] + x[i + half];
  return x[0];
}

static void narrow_step(row_block *b, const key_tile *tile, int32_t start) {
  float score[NARROW * TILE] ALIGNED, top[LANES] ALIGNED, sum[LANES] ALIGNED = {0};
  const float *query = b->query;
  int rows = (int)b->rows, is_partly_hidden = start < b->all_from[0] || start + TILE > b->all_to[0];
  ask_ahead(tile, 0, TILE / 4);
  for (int r = 0; r < rows; r += 4) switch (least(4, rows - r)) {
      case 1: narrow_scores(score + r * TILE, query + r * b->dim, b->dim, 1, tile); break;
      case 2: narrow_scores(score + r * TILE, query + r * b->dim, b->dim, 2, tile); break;
      case 3: narrow_scores(score + r * TILE, query + r * b->dim, b->dim, 3, tile); break;
      default: narrow_scores(score + r * TILE, query + r * b->dim, b->dim, 4, tile);
    }
  ask_ahead(tile, TILE / 4, TILE / 2);
  vstore(top, splat(NOTHING));
  for (int r = 0; r < rows; r++) {
    float *p = score + r * TILE;
    if (is_partly_hidden) hide_from_row(p, b, r, start);
    vf most = vload(p);
    for (int j = LANES; j < TILE; j += LANES) most = vmax(most, vload(p + j));
    top[r] = fold_lanes(most, 1);
  }
  vstore(top, raise_maximum(b, 0, vload(top)));
  for (int r = 0; r < rows; r++) {
    vf chain = {0};
    for (int j = 0; j < TILE; j += LANES) {
      vf x = vexp2(vload(score + r * TILE + j) - splat(top[r]));
      vstore(score + r * TILE + j, x);
      chain += x;
    }
    sum[r] = fold_lanes(chain, 0);
  }
  ask_ahead(tile, TILE / 2, 3 * TILE / 4);
  add_weight(b, 0, vload(sum));
  for (int r = 0; r < rows; r += 4) switch (least(4, rows - r)) {
      case 1: narrow_sums(b, score + r * TILE, r, 1, tile); break;
      case 2: narrow_sums(b, score + r * TILE, r, 2, tile); break;
      case 3: narrow_sums(b, score + r * TILE, r, 3, tile); break;
      default: narrow_sums(b, score + r * TILE, r, 4, tile);
    }
  ask_ahead(tile, 3 * TILE / 4, TILE);
}

void ck_plain_step(row_block *b, const key_tile *tile, int32_t start) {
  if (b->is_narrow) {
    if (is_seen(b, 0, 0, start)) narrow_step(b, tile, start);
    return;
  }
  for (int64_t s = 0; s < b->strips; s += 2) {
    int pair = s + 1 < b->strips;
    if (!is_seen(b, s, pair, start)) continue;
    if (pair) two_strips(b, s, tile, start);
    else one_strip(b, s, tile, start);
  }
}

/* Brings the sums of a split from [row][dim] to [dim][lane]. */
void ck_plain_end(row_block *b) {
  if (!b->is_narrow) return;
  for (int64_t d = 0; d < b->dim; d += LANES) {
    vf v[LANES];
    for (int r = 0; r < LANES; r++) v[r] = r < b->rows ? vload(b->row_sum + r * b->dim + d) : (vf){0};
    transpose(v);
    for (int i = 0; i < LANES; i++) vstore(b->sum + (d + i) * LANES, v[i]);
  }
}
