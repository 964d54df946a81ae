/* Attention over pages: what its files have in common.
 *
 * A row is one query of one head; the rows of a key-value head are its queries times the heads that share it.
 * 16 rows are a strip, one lane each. Keys come in tiles whose borders lie at multiples of TILE from the
 * start of the sequence, tiles in splits of SPLIT keys. A row is reduced tile by tile within a split and split by split,
 * from its first key on: the same order for one query as for a thousand, however they are divided among
 * calls, tasks and threads. A key that a row may not see has weight zero, which changes no bit of a sum.
 *
 * Each core comes in two forms with the same arithmetic: wide, for many strips, which share the work on a
 * tile; and narrow, for the few rows of a decode step, which must not cost more than reading the keys.
 */
#ifndef CK_ATTENTION_H
#define CK_ATTENTION_H

#include "common.h"

#define TILE 64
#define SPLIT 512
#define RUN 16          /* keys that the narrow core takes from one page */
#define NARROW 8        /* rows that the plain narrow core takes */
#define NOTHING (-1e30f) /* maximum of no score: finite, so that differences are numbers */

typedef struct {
  const void *query, *key, *value;
  void *out;
  const int32_t *tables, *lengths, *offsets;
  int64_t query_token, query_head; /* strides, in elements */
  int64_t out_token, out_head;
  int64_t key_page, key_token, key_head;
  int64_t value_page, value_token, value_head;
  int64_t table_row;
  int64_t batch, heads, kv_heads, dim, pages, page_size, tables_width;
  int64_t window; /* 0: all keys */
  int64_t causal;
  int64_t type;
  double scale;
} attention_args;

/* Up to some hundred rows of one key-value head on their way through the keys. */
typedef struct {
  int64_t strips, rows, dim;
  int64_t heads;         /* key-value heads that share the lanes of the only strip, equally many rows each; else 1 */
  int is_narrow;
  void *query;           /* [strip][dim][lane] floats, or tiles of pairs: [strip or head][dim / 2][lane][2] */
  float *sum, *total;    /* [strip][dim][lane]: of this split, of all before */
  float *row_sum;        /* narrow: [lane][dim], in place of `sum` until the split ends */
  float *max, *max_total, *weight, *weight_total; /* [strip][lane] */
  int32_t *from, *to;    /* [strip][lane]: first key that a row sees, first that it does not */
  int32_t *any_from, *any_to, *all_from, *all_to; /* [strip]: seen by some row, by all rows */
  float scale;           /* scores are multiplied by it; to base 2 */
} row_block;

/* The keys and values of one head in one tile; zeros where no row of the block sees them. */
typedef struct {
  const void *key[TILE], *value[TILE];
  const void *next_key[TILE], *next_value[TILE]; /* of the same head in the tile that follows */
  int64_t next_bytes;                            /* of a row of them; 0: no tile follows */
  float *plain;                   /* two times [TILE][dim], where they must be widened */
  bf16 *key_rows, *value_columns; /* matrix unit: [TILE][dim]; [dim][TILE], or narrow [head][TILE][dim], [head][pair][dim][2] */
  const char *keys[TILE / RUN], *values[TILE / RUN];           /* narrow: where 16 of the first head lie, in this tile */
  const char *next_keys[TILE / RUN], *next_values[TILE / RUN]; /* and in the next */
  int64_t key_token, key_head, value_token, value_head;        /* how many bytes apart tokens and heads lie, */
  int64_t next_key_token, next_value_token;                    /* and in the next tile */
  int is_paired;                                               /* values are in `value_columns` already */
} key_tile;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Asks for rows of the next tile. The narrow cores do so a few rows at a time, all through their work: memory is then busy
 * while they compute, and the few requests that a core can have under way do not hold up its own reads. */
INLINE void ask_ahead(const key_tile *tile, int from, int to) {
  for (int i = from; i < to; i++)
    for (int64_t at = 0; at < tile->next_bytes; at += 64) {
      __builtin_prefetch((const char *)tile->next_key[i] + at, 0, 3);
      __builtin_prefetch((const char *)tile->next_value[i] + at, 0, 3);
    }
}

/* Replaces the scores of one strip, [TILE][lane], by -inf where a row does not see the key. */
INLINE void hide_keys(float *score, const row_block *b, int64_t strip, int32_t start) {
  if (start >= b->all_from[strip] && start + TILE <= b->all_to[strip]) return;
  vi from, to;
  memcpy(&from, b->from + strip * LANES, 64);
  memcpy(&to, b->to + strip * LANES, 64);
  for (int32_t j = 0; j < TILE; j++) {
    vi key = (start + j) - (vi){0};
    vf seen = vselect((from <= key) & (key < to), vload(score + j * LANES), splat(-__builtin_inff()));
    vstore(score + j * LANES, seen);
  }
}

INLINE vf highest(const float *score) {
  vf a = vload(score), b = vload(score + LANES), c = vload(score + 2 * LANES), d = vload(score + 3 * LANES);
  for (int j = 4; j < TILE; j += 4) {
    a = vmax(a, vload(score + j * LANES));
    b = vmax(b, vload(score + (j + 1) * LANES));
    c = vmax(c, vload(score + (j + 2) * LANES));
    d = vmax(d, vload(score + (j + 3) * LANES));
  }
  return vmax(vmax(a, b), vmax(c, d));
}

/* Takes the new maximum in; what was summed so far is scaled down where it rose. */
INLINE vf raise_maximum(row_block *b, int64_t strip, vf highest_score) {
  vf before = vload(b->max + strip * LANES);
  vf now = vmax(before, highest_score);
  vi rose = now > before;
  uint64_t any[8];
  memcpy(any, &rose, 64);
  if (!(any[0] | any[1] | any[2] | any[3] | any[4] | any[5] | any[6] | any[7])) return now;
  vf factor = vexp2(before - now);
  if (b->is_narrow) {
    float each[LANES];
    vstore(each, factor);
    for (int64_t r = 0; r < b->rows; r++)
      for (int64_t d = 0; d < b->dim; d += LANES) {
        float *place = b->row_sum + r * b->dim + d;
        vstore(place, vload(place) * splat(each[r]));
      }
  } else {
    float *sum = b->sum + strip * b->dim * LANES;
    for (int64_t d = 0; d < b->dim; d++) vstore(sum + d * LANES, vload(sum + d * LANES) * factor);
  }
  vstore(b->weight + strip * LANES, vload(b->weight + strip * LANES) * factor);
  vstore(b->max + strip * LANES, now);
  return now;
}

INLINE void add_weight(row_block *b, int64_t strip, vf sum) {
  vstore(b->weight + strip * LANES, vload(b->weight + strip * LANES) + sum);
}

/* attention_plain.c */
int ck_plain_is_narrow(int64_t rows, int64_t dim);
void ck_plain_pack_query(row_block *b, int64_t strip, const void *const rows[LANES], int64_t type);
void ck_plain_load(key_tile *tile, int64_t dim, int64_t type);
void ck_plain_step(row_block *b, const key_tile *tile, int32_t start);
void ck_plain_end(row_block *b);

/* attention_amx.c */
void ck_amx_pack_query(row_block *b, int64_t strip, const void *const rows[LANES]);
void ck_amx_load(key_tile *tile, int64_t dim);
void ck_amx_narrow_load(key_tile *tile, int64_t dim, int64_t head);
void ck_amx_step(row_block *b, const key_tile *tile, int32_t start);
void ck_amx_narrow_step(row_block *b, key_tile *tile, int32_t start);
void ck_amx_end(row_block *b);

/* Whether some row of one or two strips sees some key of the tile. */
INLINE int is_seen(const row_block *b, int64_t strip, int pair, int32_t start) {
  int32_t from = b->any_from[strip], to = b->any_to[strip];
  if (pair && b->any_from[strip + 1] < from) from = b->any_from[strip + 1];
  if (pair && b->any_to[strip + 1] > to) to = b->any_to[strip + 1];
  return start + TILE > from && start < to;
}

#endif
