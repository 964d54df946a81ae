/* Products with weights that were packed once.
 *
 * Weights of n rows and k columns become blocks of 32 outputs, each a stream that is read from front to back. An output is
 * one chain of sums over k from the first element to the last, whatever the number of input rows: the row of a
 * batch of 1 equals the row of a batch of 2,048.
 *
 * What follows the product is done before the result leaves: adding the residual, or the gate (outputs 16 to 31 of a
 * block are then the factors of outputs 0 to 15).
 */
#define _GNU_SOURCE
#include "amx.h"
#include "common.h"

#include <sys/mman.h>

#define BLOCK 32       /* outputs */
#define ROWS 32        /* input rows that share a pass over a block */
#define TASK_ROWS 256           /* input rows that a task takes, */
#define PANEL_BYTES (640 << 10) /* and weights that it keeps near */

enum { END_PLAIN, END_RESIDUAL, END_GATE }; /* END_GATE + kind of gate */

typedef struct {
  const void *x, *packed, *residual;
  void *out;
  int64_t x_row, residual_row, out_row; /* strides, in elements */
  int64_t m, n, k;
  int64_t type, end;
} linear_args;

typedef struct {
  const linear_args *args;
  int64_t k_padded, blocks, row_tasks, rows_per_task, blocks_per_task;
  const bf16 *tail; /* the last rows, padded to 16, and any rows whose k had to be padded */
  int64_t tail_from;
  int use_amx, failed;
} job;

static int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes of the packed form; bf16: [block][k / 32][2][16 pairs of k][16 outputs][2], float: [block][k][32]. */
int64_t ck_packed_bytes(int64_t n, int64_t k, int64_t type) {
  int64_t blocks = parts(n, BLOCK);
  return type == CK_BF16 ? blocks * parts(k, 32) * 2048 : blocks * k * BLOCK * 4;
}

typedef struct {
  const void *weight;
  void *packed;
  int64_t row, n, k, type, unpack;
} pack_args;

/* Weights and caches are streamed through: large pages of the system spare look-ups. Must come before the first write. */
void ck_ask_for_large_pages(void *start, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  uintptr_t size = 2 << 20, from = ((uintptr_t)start + size - 1) / size * size, to = ((uintptr_t)start + bytes) / size * size;
  if (to > from) madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
  (void)start, (void)bytes;
#endif
}

static void pack_block(void *context, int64_t block) {
  const pack_args *a = context;
  int64_t k32 = parts(a->k, 32);
  for (int64_t i = 0; i < BLOCK; i++) {
    int64_t row = block * BLOCK + i;
    for (int64_t k = 0; k < (a->type == CK_BF16 ? k32 * 32 : a->k); k++) {
      int inside = row < a->n && k < a->k;
      if (a->type == CK_BF16) {
        bf16 *to = (bf16 *)a->packed + ((block * k32 + k / 32) * 2 + i / 16) * 512 + k % 32 / 2 * 32 + i % 16 * 2 + k % 2;
        if (!a->unpack) *to = inside ? ((const bf16 *)a->weight)[row * a->row + k] : 0;
        else if (inside) ((bf16 *)a->weight)[row * a->row + k] = *to;
      } else {
        float *to = (float *)a->packed + (block * a->k + k) * BLOCK + i;
        if (!a->unpack) *to = inside ? ((const float *)a->weight)[row * a->row + k] : 0;
        else if (inside) ((float *)a->weight)[row * a->row + k] = *to;
      }
    }
  }
}

void ck_pack(const pack_args *a) {
  if (!a->unpack) ck_ask_for_large_pages(a->packed, ck_packed_bytes(a->n, a->k, a->type));
  ck_parallel(pack_block, (void *)a, parts(a->n, BLOCK));
}

INLINE void put(const linear_args *a, int64_t row, int64_t column, vf v, int64_t width) {
  float x[LANES];
  if (width <= 0) return;
  int whole = width >= LANES;
  if (a->end == END_RESIDUAL) {
    int64_t at = row * a->residual_row + column;
    if (!whole) {
      vstore(x, v);
      for (int64_t i = 0; i < width; i++)
        x[i] += a->type == CK_BF16 ? widen(((const bf16 *)a->residual)[at + i]) : ((const float *)a->residual)[at + i];
      v = vload(x);
    } else {
      v += a->type == CK_BF16 ? widen16((const bf16 *)a->residual + at) : vload((const float *)a->residual + at);
    }
  }
  int64_t at = row * a->out_row + column;
  if (whole) {
    if (a->type == CK_BF16) narrow16((bf16 *)a->out + at, v);
    else vstore((float *)a->out + at, v);
    return;
  }
  vstore(x, v);
  for (int64_t i = 0; i < width; i++) {
    if (a->type == CK_BF16) ((bf16 *)a->out)[at + i] = narrow(x[i]);
    else ((float *)a->out)[at + i] = x[i];
  }
}

/* Both halves of a block of outputs of one row. */
INLINE void finish(const linear_args *a, int64_t row, int64_t block, vf low, vf high) {
  if (a->end >= END_GATE) {
    put(a, row, block * LANES, gate(low, a->end - END_GATE) * high, a->n / 2 - block * LANES);
    return;
  }
  put(a, row, block * BLOCK, low, a->n - block * BLOCK);
  put(a, row, block * BLOCK + LANES, high, a->n - block * BLOCK - LANES);
}

#ifdef CK_AMX
/* Where 16 rows lie, and how far apart. */
INLINE const char *rows_at(const job *j, int64_t row, int64_t *stride) {
  if (row >= j->tail_from) {
    *stride = j->k_padded * 2;
    return (const char *)(j->tail + (row - j->tail_from) * j->k_padded);
  }
  *stride = j->args->x_row * 2;
  return (const char *)((const bf16 *)j->args->x + row * j->args->x_row);
}

INLINE void finish_tiles(const linear_args *a, const float *sums, int64_t row, int64_t block) {
  if (a->end == END_PLAIN && (block + 1) * BLOCK <= a->n) {
    bf16 *out = (bf16 *)a->out + row * a->out_row + block * BLOCK;
    for (int64_t r = 0; r < least(16, a->m - row); r++, out += a->out_row)
      _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(sums + 256 + r * 16), _mm512_load_ps(sums + r * 16)));
    return;
  }
  for (int64_t r = 0; r < least(16, a->m - row); r++)
    finish(a, row + r, block, vload(sums + r * 16), vload(sums + 256 + r * 16));
}

INLINE void amx_block(const job *j, int64_t row, const int is_double, int64_t block) {
  const char *w = (const char *)j->args->packed + block * (j->k_padded / 32) * 2048;
  float sums[4 * 256] ALIGNED;
  int64_t stride, other_stride;
  const char *a = rows_at(j, row, &stride);
  TZERO(0);
  TZERO(1);
  if (is_double) {
    const char *c = rows_at(j, row + 16, &other_stride);
    TZERO(2);
    TZERO(3);
    for (int64_t k = 0; k < j->k_padded; k += 32, w += 2048) {
      for (int line = 0; line < 2048; line += 64) __builtin_prefetch(w + 4096 + line); /* near, not only nearer */
      TLOAD(4, a + 2 * k, stride);
      TLOAD(6, w, 64);
      TLOAD(7, w + 1024, 64);
      TLOAD(5, c + 2 * k, other_stride);
      TDP(0, 4, 6);
      TDP(1, 4, 7);
      TDP(2, 5, 6);
      TDP(3, 5, 7);
    }
    TSTORE(2, sums + 512, 64);
    TSTORE(3, sums + 768, 64);
  } else {
    for (int64_t k = 0; k < j->k_padded; k += 32, w += 2048) {
      for (int line = 0; line < 2048; line += 64) __builtin_prefetch(w + 4096 + line);
      TLOAD(4, a + 2 * k, stride);
      TLOAD(6, w, 64);
      TLOAD(7, w + 1024, 64);
      TDP(0, 4, 6);
      TDP(1, 4, 7);
    }
  }
  TSTORE(0, sums, 64);
  TSTORE(1, sums + 256, 64);
  finish_tiles(j->args, sums, row, block);
  if (is_double) finish_tiles(j->args, sums + 512, row + 16, block);
}
#endif

/* Without the matrix unit: some rows at a time against one block. */
#ifdef CK_AVX512
#define MICRO 8
#else
#define MICRO 2
#endif

INLINE void plain_rows(const linear_args *a, int64_t row, const int rows, int64_t block) {
  vf sum[MICRO][2];
  const float *w = (const float *)a->packed + block * a->k * BLOCK;
  const float *x[MICRO];
  for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vf){0}, x[r] = (const float *)a->x + (row + r) * a->x_row;
  for (int64_t k = 0; k < a->k; k++) {
    vf low = vload(w + k * BLOCK), high = vload(w + k * BLOCK + LANES);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf v = splat(x[r][k]);
      sum[r][0] = vfma(v, low, sum[r][0]);
      sum[r][1] = vfma(v, high, sum[r][1]);
    }
  }
  for (int r = 0; r < rows; r++) finish(a, row + r, block, sum[r][0], sum[r][1]);
}

INLINE void half_rows(const linear_args *a, int64_t row, const int rows, int64_t block) {
  vf sum[MICRO][2];
  int64_t k32 = parts(a->k, 32);
  const uint16_t *w = (const uint16_t *)a->packed + block * k32 * 1024;
  const bf16 *x[MICRO];
  for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vf){0}, x[r] = (const bf16 *)a->x + (row + r) * a->x_row;
  for (int64_t k = 0; k < a->k; k += 2) {
    vu pairs[2];
    memcpy(&pairs[0], w + k / 32 * 1024 + k % 32 * 16, 64);
    memcpy(&pairs[1], w + k / 32 * 1024 + 512 + k % 32 * 16, 64);
    int odd = k + 1 < a->k;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf first = splat(widen(x[r][k])), second = odd ? splat(widen(x[r][k + 1])) : (vf){0};
      for (int h = 0; h < 2; h++) {
        sum[r][h] = vfma(first, (vf)(pairs[h] << 16), sum[r][h]);
        sum[r][h] = vfma(second, (vf)(pairs[h] & 0xffff0000u), sum[r][h]);
      }
    }
  }
  for (int r = 0; r < rows; r++) finish(a, row + r, block, sum[r][0], sum[r][1]);
}

static void plain_block(const linear_args *a, int64_t row, int64_t rows, int64_t block) {
  int64_t r = 0;
  if (a->type == CK_F32) {
    for (; r + MICRO <= rows; r += MICRO) plain_rows(a, row + r, MICRO, block);
    for (; r < rows; r++) plain_rows(a, row + r, 1, block);
  } else {
    for (; r + MICRO <= rows; r += MICRO) half_rows(a, row + r, MICRO, block);
    for (; r < rows; r++) half_rows(a, row + r, 1, block);
  }
}

static void linear_task(void *context, int64_t index) {
  job *j = context;
  const linear_args *a = j->args;
  int64_t block_from = index / j->row_tasks * j->blocks_per_task, row_from = index % j->row_tasks * j->rows_per_task;
  int64_t block_to = least(j->blocks, block_from + j->blocks_per_task), row_to = least(a->m, row_from + j->rows_per_task);
#ifdef CK_AMX
  tile_config before = {{0}};
  if (j->use_amx) before = tiles_begin();
#endif
  for (int64_t row = row_from; row < row_to; row += ROWS)
    for (int64_t block = block_from; block < block_to; block++) {
#ifdef CK_AMX
      if (j->use_amx) {
        if (row + 16 < row_to) amx_block(j, row, 1, block);
        else amx_block(j, row, 0, block);
        continue;
      }
#endif
      plain_block(a, row, least(ROWS, row_to - row), block);
    }
#ifdef CK_AMX
  if (j->use_amx) tiles_end(before);
#endif
}

/* Rows that cannot be read as whole tiles where they are get a copy with zeros around. */
static int copy_tail(job *j) {
  const linear_args *a = j->args;
  j->tail_from = a->k == j->k_padded ? a->m / 16 * 16 : 0;
  int64_t rows = parts(a->m - j->tail_from, 16) * 16;
  if (!rows) return 1;
  bf16 *tail = ck_scratch(0, (size_t)(rows * j->k_padded) * 2);
  if (!tail) return 0;
  memset(tail, 0, (size_t)(rows * j->k_padded) * 2);
  for (int64_t r = j->tail_from; r < a->m; r++)
    memcpy(tail + (r - j->tail_from) * j->k_padded, (const bf16 *)a->x + r * a->x_row, 2 * a->k);
  j->tail = tail;
  return 1;
}

int ck_linear(const linear_args *a) {
  if (!a->m || !a->n) return CK_OK;
  job j = {.args = a, .k_padded = parts(a->k, 32) * 32, .blocks = parts(a->n, BLOCK)};
  j.use_amx = a->type == CK_BF16 && ck_amx_usable();
  if (j.use_amx && !copy_tail(&j)) return CK_NO_MEMORY;
  int64_t block_bytes = a->k * BLOCK * (a->type == CK_BF16 ? 2 : 4), threads = ck_threads();
  j.rows_per_task = a->m <= 2 * ROWS ? 2 * ROWS : TASK_ROWS;
  j.row_tasks = parts(a->m, j.rows_per_task);
  int64_t panels = least(j.blocks, parts(j.blocks * block_bytes, PANEL_BYTES));
  j.blocks_per_task = parts(j.blocks, panels ? panels : 1);
  /* Enough tasks that the threads end together. */
  while (threads > 1 && j.blocks_per_task > 1 && parts(j.blocks, j.blocks_per_task) * j.row_tasks < 8 * threads)
    j.blocks_per_task = (j.blocks_per_task + 1) / 2;
  ck_parallel(linear_task, &j, parts(j.blocks, j.blocks_per_task) * j.row_tasks);
  return CK_OK;
}
