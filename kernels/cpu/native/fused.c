/* The small operations between the products, each in one pass over its data. */
#include "common.h"

#define TASK_ELEMENTS 16384 /* less is not worth waking a thread */

static int64_t rows_per_task(int64_t rows, int64_t width) {
  int64_t n = TASK_ELEMENTS / (width ? width : 1);
  return n < 1 ? 1 : n < rows ? n : rows;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE vf get16(const void *p, int64_t at, int64_t type) {
  return type == CK_BF16 ? widen16((const bf16 *)p + at) : vload((const float *)p + at);
}

INLINE void put16(void *p, int64_t at, vf v, int64_t type) {
  if (type == CK_BF16) narrow16((bf16 *)p + at, v);
  else vstore((float *)p + at, v);
}

/* Lanes past the end hold zeros; they are not written. */
INLINE vf get_some(const void *p, int64_t at, int64_t count, int64_t type) {
  if (count >= LANES) return get16(p, at, type);
  float x[LANES] = {0};
  for (int64_t i = 0; i < count; i++) x[i] = type == CK_BF16 ? widen(((const bf16 *)p)[at + i]) : ((const float *)p)[at + i];
  return vload(x);
}

INLINE void put_some(void *p, int64_t at, int64_t count, vf v, int64_t type) {
  if (count >= LANES) {
    put16(p, at, v, type);
    return;
  }
  float x[LANES];
  vstore(x, v);
  for (int64_t i = 0; i < count; i++) {
    if (type == CK_BF16) ((bf16 *)p)[at + i] = narrow(x[i]);
    else ((float *)p)[at + i] = x[i];
  }
}

typedef struct {
  const void *x, *weight;
  void *residual, *out;
  int64_t x_row, residual_row, out_row, rows, width, type;
  double epsilon, offset;
  int64_t step;
} norm_args;

INLINE void norm_row(const norm_args *a, int64_t row, const int64_t type) {
  int64_t x = row * a->x_row, out = row * a->out_row, r = row * a->residual_row;
  const void *from = a->x;
  vf squares = {0};
  if (a->residual) {
    for (int64_t i = 0; i < a->width; i += LANES) {
      int64_t n = a->width - i;
      put_some(a->residual, r + i, n, get_some(a->residual, r + i, n, type) + get_some(a->x, x + i, n, type), type);
    }
    from = a->residual, x = r;
  }
  for (int64_t i = 0; i < a->width; i += LANES) {
    vf v = get_some(from, x + i, a->width - i, type);
    squares = vfma(v, v, squares);
  }
  float lanes[LANES];
  vstore(lanes, squares);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  vf factor = splat(1.0f / __builtin_sqrtf(lanes[0] / (float)a->width + (float)a->epsilon));
  for (int64_t i = 0; i < a->width; i += LANES) {
    int64_t n = a->width - i;
    vf weight = get_some(a->weight, i, n, type) + splat((float)a->offset);
    put_some(a->out, out + i, n, get_some(from, x + i, n, type) * factor * weight, type);
  }
}

static void norm_task(void *context, int64_t index) {
  const norm_args *a = context;
  for (int64_t row = index * a->step; row < least(a->rows, (index + 1) * a->step); row++) {
    if (a->type == CK_BF16) norm_row(a, row, CK_BF16);
    else norm_row(a, row, CK_F32);
  }
}

int ck_rms_norm(norm_args *a) {
  a->step = rows_per_task(a->rows, a->width);
  if (a->rows) ck_parallel(norm_task, a, (a->rows + a->step - 1) / a->step);
  return CK_OK;
}

typedef struct {
  const void *x;
  void *out;
  int64_t x_row, out_row, rows, width, type, kind, step;
} gate_args;

INLINE void gate_row(const gate_args *a, int64_t row, const int64_t type, const int64_t kind) {
  for (int64_t i = 0; i < a->width; i += LANES) {
    int64_t n = a->width - i, at = row * a->x_row + i;
    vf v = gate(get_some(a->x, at, n, type), kind) * get_some(a->x, at + a->width, n, type);
    put_some(a->out, row * a->out_row + i, n, v, type);
  }
}

static void gate_task(void *context, int64_t index) {
  const gate_args *a = context;
  for (int64_t row = index * a->step; row < least(a->rows, (index + 1) * a->step); row++) {
    if (a->type == CK_BF16 && a->kind == GATE_SILU) gate_row(a, row, CK_BF16, GATE_SILU);
    else if (a->type == CK_BF16) gate_row(a, row, CK_BF16, GATE_GELU_TANH);
    else gate_row(a, row, CK_F32, a->kind);
  }
}

int ck_gate(gate_args *a) {
  a->step = rows_per_task(a->rows, a->width);
  if (a->rows) ck_parallel(gate_task, a, (a->rows + a->step - 1) / a->step);
  return CK_OK;
}

typedef struct {
  void *x;
  const int32_t *positions;
  const float *cosines, *sines; /* [position][turned / 2] */
  int64_t token, head, tokens, heads, turned, places, type, is_interleaved, step;
} rope_args;

/* Turns the pairs (i, i + half) of one head. */
INLINE void turn_halves(void *x, int64_t at, const float *c, const float *s, int64_t half, int64_t type) {
  for (int64_t i = 0; i < half; i += LANES) {
    int64_t n = half - i;
    vf a = get_some(x, at + i, n, type), b = get_some(x, at + half + i, n, type);
    vf cosine = get_some(c, i, n, CK_F32), sine = get_some(s, i, n, CK_F32);
    put_some(x, at + i, n, vfma(a, cosine, -(b * sine)), type);
    put_some(x, at + half + i, n, vfma(b, cosine, a * sine), type);
  }
}

/* Turns the pairs (2i, 2i + 1). */
INLINE void turn_neighbours(void *x, int64_t at, const float *c, const float *s, int64_t half, int64_t type) {
  for (int64_t i = 0; i < half; i++) {
    vf pair = get_some(x, at + 2 * i, 2, type), turned = {0};
    turned[0] = pair[0] * c[i] - pair[1] * s[i];
    turned[1] = pair[1] * c[i] + pair[0] * s[i];
    put_some(x, at + 2 * i, 2, turned, type);
  }
}

static void rope_task(void *context, int64_t index) {
  const rope_args *a = context;
  int64_t half = a->turned / 2;
  for (int64_t t = index * a->step; t < least(a->tokens, (index + 1) * a->step); t++) {
    const float *c = a->cosines + a->positions[t] * half, *s = a->sines + a->positions[t] * half;
    for (int64_t h = 0; h < a->heads; h++) {
      int64_t at = t * a->token + h * a->head;
      if (a->is_interleaved) turn_neighbours(a->x, at, c, s, half, a->type);
      else if (a->type == CK_BF16) turn_halves(a->x, at, c, s, half, CK_BF16);
      else turn_halves(a->x, at, c, s, half, CK_F32);
    }
  }
}

int ck_rope(rope_args *a) {
  for (int64_t t = 0; t < a->tokens; t++)
    if (a->positions[t] < 0 || a->positions[t] >= a->places) return CK_BAD_PAGE;
  a->step = rows_per_task(a->tokens, a->heads * a->turned);
  if (a->tokens) ck_parallel(rope_task, a, (a->tokens + a->step - 1) / a->step);
  return CK_OK;
}

typedef struct {
  const char *key, *value;
  char *key_pages, *value_pages;
  const int32_t *slots;
  /* strides in bytes */
  int64_t key_token, key_head, value_token, value_head;
  int64_t key_page, key_slot, key_page_head, value_page, value_slot, value_page_head;
  int64_t tokens, heads, row, pages, page_size, step;
} store_args;

static void store_task(void *context, int64_t index) {
  const store_args *a = context;
  for (int64_t t = index * a->step; t < least(a->tokens, (index + 1) * a->step); t++) {
    int64_t page = a->slots[t] / a->page_size, slot = a->slots[t] % a->page_size;
    if (a->slots[t] < 0) continue;
    for (int64_t h = 0; h < a->heads; h++) {
      memcpy(a->key_pages + page * a->key_page + slot * a->key_slot + h * a->key_page_head,
             a->key + t * a->key_token + h * a->key_head, a->row);
      memcpy(a->value_pages + page * a->value_page + slot * a->value_slot + h * a->value_page_head,
             a->value + t * a->value_token + h * a->value_head, a->row);
    }
  }
}

int ck_store(store_args *a) {
  for (int64_t t = 0; t < a->tokens; t++)
    if (a->slots[t] >= a->pages * a->page_size) return CK_BAD_PAGE;
  a->step = rows_per_task(a->tokens, a->heads * a->row);
  if (a->tokens) ck_parallel(store_task, a, (a->tokens + a->step - 1) / a->step);
  return CK_OK;
}

typedef struct {
  char *key_pages, *value_pages;
  const int32_t *pairs; /* [count][2]: from, to */
  int64_t key_page, value_page, page_bytes, pages, count;
} copy_args;

static void copy_task(void *context, int64_t index) {
  const copy_args *a = context;
  int64_t from = a->pairs[2 * index], to = a->pairs[2 * index + 1];
  memcpy(a->key_pages + to * a->key_page, a->key_pages + from * a->key_page, a->page_bytes);
  memcpy(a->value_pages + to * a->value_page, a->value_pages + from * a->value_page, a->page_bytes);
}

int ck_copy_pages(copy_args *a) {
  for (int64_t i = 0; i < 2 * a->count; i++)
    if (a->pairs[i] < 0 || a->pairs[i] >= a->pages) return CK_BAD_PAGE;
  ck_parallel(copy_task, a, a->count);
  return CK_OK;
}
