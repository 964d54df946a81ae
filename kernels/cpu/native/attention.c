/* Attention over pages: who does what. See attention.h. */
#include "attention.h"
#include "amx.h"

#define MOST_ROWS 384 /* of a task */
#define LEAST_ROWS 96

typedef struct {
  const attention_args *args;
  const int64_t *first_item; /* [batch + 1] */
  int64_t rows_per_block;
  int64_t splits;       /* that a sequence is divided into; 0: a task does all splits of its rows */
  float *partial;       /* [item][split][block] of sum, max, weight */
  int64_t partial_size; /* of a block */
  int use_amx;
  int failed;
} job;

/* Some rows of one key-value head, or the few rows of all heads of a sequence: their keys lie side by side. */
typedef struct { int64_t sequence, kv_head, kv_heads, row, rows, length, queries; } item;

static int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t element_bytes(const attention_args *a) { return a->type == CK_BF16 ? 2 : 4; }
static int64_t group_of(const attention_args *a) { return a->heads / a->kv_heads; }

static int64_t items_of(const attention_args *a, int64_t sequence, int64_t rows_per_block) {
  int64_t rows = (a->offsets[sequence + 1] - a->offsets[sequence]) * group_of(a);
  return rows <= LANES ? rows > 0 : parts(rows, rows_per_block) * a->kv_heads;
}

static item find_item(const job *j, int64_t index) {
  const attention_args *a = j->args;
  int64_t low = 0, high = a->batch;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (j->first_item[middle] <= index) low = middle;
    else high = middle;
  }
  item it = {.sequence = low, .kv_heads = 1, .length = a->lengths[low], .queries = a->offsets[low + 1] - a->offsets[low]};
  int64_t within = index - j->first_item[low], rows = it.queries * group_of(a);
  if (rows <= LANES) {
    it.kv_heads = a->kv_heads, it.rows = rows;
    return it;
  }
  it.kv_head = within % a->kv_heads;
  it.row = within / a->kv_heads * j->rows_per_block;
  it.rows = least(j->rows_per_block, rows - it.row);
  return it;
}

/* On the matrix unit the few rows of several heads share a strip: a lane costs the same whether it is used or not. */
static int64_t heads_per_block(const job *j, const item *it) {
  return j->use_amx && it->rows <= LANES ? least(it->kv_heads, LANES / it->rows) : 1;
}

static size_t block_floats(int64_t strips, int64_t heads, int64_t dim) {
  return (size_t)strips * LANES * ((2 + heads) * dim + 7) + LANES * dim;
}

/* Which keys the rows see, and where the rows are. Lanes without a row repeat the last one. */
static void begin_strip(row_block *b, const job *j, const item *it, int64_t s, const void *rows[LANES]) {
  const attention_args *a = j->args;
  int64_t group = group_of(a);
  b->any_from[s] = INT32_MAX, b->any_to[s] = 0, b->all_from[s] = 0, b->all_to[s] = INT32_MAX;
  for (int lane = 0; lane < LANES; lane++) {
    int64_t index = least(s * LANES + lane, b->rows - 1), row = it->row + index % it->rows, token = row / group;
    int64_t place = it->length - it->queries + token, head = (it->kv_head + index / it->rows) * group + row % group;
    int32_t from = a->window ? (int32_t)most(0, place - a->window + 1) : 0;
    int32_t to = (int32_t)(a->causal ? place + 1 : it->length);
    int64_t at = (a->offsets[it->sequence] + token) * a->query_token + head * a->query_head;
    rows[lane] = (const char *)a->query + at * element_bytes(a);
    b->from[s * LANES + lane] = from, b->to[s * LANES + lane] = to;
    if (from < b->any_from[s]) b->any_from[s] = from;
    if (from > b->all_from[s]) b->all_from[s] = from;
    if (to > b->any_to[s]) b->any_to[s] = to;
    if (to < b->all_to[s]) b->all_to[s] = to;
  }
}

/* Lays a block out in `memory` and packs its queries; returns what is left of the memory. */
static float *begin_block(row_block *b, const job *j, const item *it, float *memory) {
  const attention_args *a = j->args;
  int64_t rows = it->rows * it->kv_heads, strips = parts(rows, LANES);
  size_t lanes = (size_t)strips * LANES;
  *b = (row_block){.strips = strips, .rows = rows, .dim = a->dim, .heads = it->kv_heads};
  b->scale = (float)(a->scale * 1.4426950408889634);
  b->is_narrow = it->rows <= LANES && (j->use_amx || ck_plain_is_narrow(it->rows, a->dim));
  b->sum = memory, memory += lanes * a->dim;
  b->total = memory, memory += lanes * a->dim;
  b->query = memory, memory += lanes * a->dim * it->kv_heads;
  b->row_sum = memory, memory += LANES * a->dim;
  b->max = memory, memory += lanes;
  b->max_total = memory, memory += lanes;
  b->weight = memory, memory += lanes;
  b->weight_total = memory, memory += lanes;
  b->from = (int32_t *)memory, memory += lanes;
  b->to = (int32_t *)memory, memory += lanes;
  b->any_from = (int32_t *)memory, b->any_to = b->any_from + strips;
  b->all_from = b->any_to + strips, b->all_to = b->all_from + strips, memory += lanes;
  for (int64_t s = 0; s < strips; s++) {
    const void *rows[LANES];
    begin_strip(b, j, it, s, rows);
    if (j->use_amx) ck_amx_pack_query(b, s, rows);
    else ck_plain_pack_query(b, s, rows, a->type);
  }
  return memory;
}

static void clear_split(row_block *b) {
  memset(b->sum, 0, sizeof(float) * b->strips * b->dim * LANES);
  memset(b->weight, 0, sizeof(float) * b->strips * LANES);
  if (b->is_narrow) memset(b->row_sum, 0, sizeof(float) * b->dim * LANES);
  for (int64_t i = 0; i < b->strips * LANES; i++) b->max[i] = NOTHING;
}

static void clear_total(row_block *b) {
  memset(b->total, 0, sizeof(float) * b->strips * b->dim * LANES);
  memset(b->weight_total, 0, sizeof(float) * b->strips * LANES);
  for (int64_t i = 0; i < b->strips * LANES; i++) b->max_total[i] = NOTHING;
}

/* Adds a split to what came before it. */
static void merge_split(row_block *b) {
  for (int64_t s = 0; s < b->strips; s++) {
    float *max_total = b->max_total + s * LANES, *weight_total = b->weight_total + s * LANES;
    vf old = vload(max_total), new = vload(b->max + s * LANES), top = vmax(old, new);
    vf keep = vexp2(old - top), take = vexp2(new - top);
    vstore(max_total, top);
    vstore(weight_total, vfma(vload(weight_total), keep, vload(b->weight + s * LANES) * take));
    float *sum = b->sum + s * b->dim * LANES, *total = b->total + s * b->dim * LANES;
    for (int64_t d = 0; d < b->dim * LANES; d += LANES)
      vstore(total + d, vfma(vload(total + d), keep, vload(sum + d) * take));
  }
}

static void write_row(const attention_args *a, int64_t place, const float *x, int64_t width) {
  if (a->type == CK_F32) {
    memcpy((float *)a->out + place, x, 4 * width);
  } else if (width == LANES) {
    narrow16((bf16 *)a->out + place, vload(x));
  } else {
    for (int64_t d = 0; d < width; d++) ((bf16 *)a->out)[place + d] = narrow(x[d]);
  }
}

static void write_out(const row_block *b, const attention_args *a, const item *it) {
  int64_t group = group_of(a), dim = a->dim;
  for (int64_t s = 0; s < b->strips; s++) {
    vf weight = vload(b->weight_total + s * LANES);
    vf factor = vselect(weight == splat(0.0f), splat(0.0f), splat(1.0f) / weight);
    const float *total = b->total + s * dim * LANES;
    for (int64_t d0 = 0; d0 < dim; d0 += LANES) {
      int64_t width = least(LANES, dim - d0);
      vf block[LANES];
      for (int64_t d = 0; d < LANES; d++) block[d] = d < width ? vload(total + (d0 + d) * LANES) * factor : (vf){0};
      transpose(block);
      for (int lane = 0; lane < LANES && s * LANES + lane < b->rows; lane++) {
        int64_t index = s * LANES + lane, row = it->row + index % it->rows;
        int64_t token = a->offsets[it->sequence] + row / group;
        int64_t head = (it->kv_head + index / it->rows) * group + row % group;
        float x[LANES];
        vstore(x, block[lane]);
        write_row(a, token * a->out_token + head * a->out_head + d0, x, width);
      }
    }
  }
}

/* Finds the keys [from, to) of the tile that begins at `start`; the others count as zeros. */
static void find_keys(const void *keys[TILE], const void *values[TILE], const job *j, const item *it, int64_t start,
                      int64_t from, int64_t to) {
  static const float zeros[512] ALIGNED;
  const attention_args *a = j->args;
  const int32_t *table = a->tables + it->sequence * a->table_row;
  int64_t bytes = element_bytes(a), first = most(start, from), last = least(start + TILE, to);
  int64_t page = first / a->page_size, slot = first % a->page_size;
  for (int64_t i = 0; i < TILE; i++) keys[i] = values[i] = zeros;
  for (int64_t place = first; place < last; page++, slot = 0) {
    int64_t run = least(a->page_size - slot, last - place), p = table[page];
    const char *key = (const char *)a->key + (p * a->key_page + slot * a->key_token + it->kv_head * a->key_head) * bytes;
    const char *value = (const char *)a->value + (p * a->value_page + slot * a->value_token + it->kv_head * a->value_head) * bytes;
    for (int64_t i = 0; i < run; i++, place++) {
      keys[place - start] = key + i * a->key_token * bytes;
      values[place - start] = value + i * a->value_token * bytes;
    }
  }
}

/* The keys that some row of the block sees. */
static void key_range(const row_block *b, int64_t *from, int64_t *to) {
  *from = INT32_MAX, *to = 0;
  for (int64_t s = 0; s < b->strips; s++) *from = least(*from, b->any_from[s]), *to = most(*to, b->any_to[s]);
}

/* The heads of a block, as an item of their own. */
static item heads_of(const job *j, const item *it, int64_t block) {
  int64_t share = heads_per_block(j, it);
  item part = *it;
  part.kv_head += block * share;
  part.kv_heads = least(share, it->kv_heads - block * share);
  return part;
}

static int64_t blocks_of(const job *j, const item *it) { return parts(it->kv_heads, heads_per_block(j, it)); }

static void plain_tile(row_block *b, const job *j, const item *it, key_tile *tile, int64_t start, int64_t from, int64_t to) {
  int64_t dim = j->args->dim;
  find_keys(tile->key, tile->value, j, it, start, from, to);
  tile->next_bytes = b->is_narrow && start + TILE < to ? dim * element_bytes(j->args) : 0;
  if (tile->next_bytes) find_keys(tile->next_key, tile->next_value, j, it, start + TILE, from, to);
  ck_plain_load(tile, dim, j->args->type);
  ck_plain_step(b, tile, (int32_t)start);
}

static void amx_tile(row_block *b, const job *j, const item *it, key_tile *tile, int64_t start, int64_t from, int64_t to) {
  find_keys(tile->key, tile->value, j, it, start, from, to);
  ck_amx_load(tile, j->args->dim);
  ck_amx_step(b, tile, (int32_t)start);
}

/* Where each run of keys of a tile lies; runs that nobody sees are replaced by ones that are. */
static void find_runs(const char *keys[TILE / RUN], const char *values[TILE / RUN], const job *j, const item *it,
                      int64_t start, int64_t from, int64_t to) {
  const attention_args *a = j->args;
  const int32_t *table = a->tables + it->sequence * a->table_row;
  for (int i = 0; i < TILE / RUN; i++) {
    int64_t place = most(from / RUN * RUN, least(start + i * RUN, (to - 1) / RUN * RUN));
    int64_t page = table[place / a->page_size], slot = place % a->page_size;
    keys[i] = (const char *)a->key + 2 * (page * a->key_page + slot * a->key_token + it->kv_head * a->key_head);
    values[i] = (const char *)a->value + 2 * (page * a->value_page + slot * a->value_token + it->kv_head * a->value_head);
  }
}

/* Whole tiles are read where they lie; of others, and of small pages, a copy is made. */
static void narrow_tile(row_block *b, const job *j, const item *it, key_tile *tile, int64_t start, int64_t from, int64_t to) {
  const attention_args *a = j->args;
  int64_t dim = a->dim;
  int is_in_runs = a->page_size % RUN == 0;
  tile->is_paired = !is_in_runs || start < from || start + TILE > to;
  if (!tile->is_paired) {
    find_runs(tile->keys, tile->values, j, it, start, from, to);
    tile->key_token = 2 * a->key_token, tile->key_head = 2 * a->key_head;
    tile->value_token = 2 * a->value_token, tile->value_head = 2 * a->value_head;
  } else {
    item head = *it;
    for (int64_t h = 0; h < it->kv_heads; h++, head.kv_head++) {
      find_keys(tile->key, tile->value, j, &head, start, from, to);
      ck_amx_narrow_load(tile, dim, h);
    }
    for (int i = 0; i < TILE / RUN; i++) tile->keys[i] = (const char *)(tile->key_rows + RUN * i * dim);
    tile->key_token = 2 * dim, tile->key_head = 2 * TILE * dim;
  }
  tile->next_bytes = is_in_runs && start + TILE < to ? 2 * dim * it->kv_heads : 0;
  if (tile->next_bytes) find_runs(tile->next_keys, tile->next_values, j, it, start + TILE, from, to);
  tile->next_key_token = 2 * a->key_token, tile->next_value_token = 2 * a->value_token;
  ck_amx_narrow_step(b, tile, (int32_t)start);
}

static void run_split(row_block *b, const job *j, const item *it, key_tile *tile, int64_t split) {
  int64_t from, to, blocks = blocks_of(j, it);
  key_range(b, &from, &to);
  int64_t end = least(to, (split + 1) * SPLIT), start = most(from / TILE * TILE, split * SPLIT);
#ifdef CK_AMX
  tile_config before = {{0}};
  if (j->use_amx) before = b->is_narrow ? tiles_begin_with(4, (int)it->rows) : tiles_begin();
#endif
  for (int64_t i = 0; i < blocks; i++) clear_split(b + i);
  for (; start < end; start += TILE)
    for (int64_t i = 0; i < blocks; i++) {
      item part = heads_of(j, it, i);
      if (!j->use_amx) plain_tile(b + i, j, &part, tile, start, from, to);
      else if (b->is_narrow) narrow_tile(b + i, j, &part, tile, start, from, to);
      else amx_tile(b + i, j, &part, tile, start, from, to);
    }
  for (int64_t i = 0; i < blocks; i++) {
    if (j->use_amx) ck_amx_end(b + i);
    else ck_plain_end(b + i);
  }
#ifdef CK_AMX
  if (j->use_amx) tiles_end(before);
#endif
}

/* Prepares the blocks of a task. NULL when out of memory. */
static row_block *begin_task(job *j, const item *it, key_tile *tile) {
  int64_t dim = j->args->dim, wide = parts(dim, LANES) * LANES, strips = parts(it->rows, LANES);
  int64_t count = blocks_of(j, it), share = heads_per_block(j, it);
  size_t blocks = count * block_floats(strips, share, dim), rows = 2 * (size_t)TILE * wide * share;
  size_t heads = parts(count * sizeof(row_block), 64) * 64;
  char *memory = ck_scratch(1, heads + 4 * (blocks + rows));
  if (!memory) {
    j->failed = 1;
    return NULL;
  }
  row_block *b = (row_block *)memory;
  float *floats = (float *)(memory + heads);
  tile->plain = floats;
  tile->key_rows = (bf16 *)floats;
  tile->value_columns = tile->key_rows + TILE * wide * share;
  floats += rows;
  for (int64_t i = 0; i < count; i++) {
    item part = heads_of(j, it, i);
    floats = begin_block(b + i, j, &part, floats);
    clear_total(b + i);
  }
  return b;
}

static void end_task(const row_block *b, const job *j, const item *it) {
  for (int64_t i = 0; i < blocks_of(j, it); i++) {
    item part = heads_of(j, it, i);
    write_out(b + i, j->args, &part);
  }
}

static void whole_task(void *context, int64_t index) {
  job *j = context;
  /* The last rows see most keys: they go first. */
  item it = find_item(j, j->first_item[j->args->batch] - 1 - index);
  key_tile tile;
  row_block *b = begin_task(j, &it, &tile);
  if (!b) return;
  int64_t from, to;
  key_range(b, &from, &to);
  for (int64_t split = from / SPLIT; split * SPLIT < to; split++) {
    run_split(b, j, &it, &tile, split);
    for (int64_t i = 0; i < blocks_of(j, &it); i++) merge_split(b + i);
  }
  end_task(b, j, &it);
}

static void use_partial(row_block *b, const job *j, int64_t index, int64_t split, int64_t block) {
  b->sum = j->partial + ((index * j->splits + split) * j->args->kv_heads + block) * j->partial_size;
  b->max = b->sum + b->strips * LANES * b->dim;
  b->weight = b->max + b->strips * LANES;
}

static void split_task(void *context, int64_t task) {
  job *j = context;
  int64_t index = task / j->splits, split = task % j->splits, from, to;
  item it = find_item(j, index);
  if (split * SPLIT >= it.length) return;
  key_tile tile;
  row_block *b = begin_task(j, &it, &tile);
  if (!b) return;
  key_range(b, &from, &to);
  if (split * SPLIT >= to || (split + 1) * SPLIT <= from) return;
  for (int64_t i = 0; i < blocks_of(j, &it); i++) use_partial(b + i, j, index, split, i);
  run_split(b, j, &it, &tile, split);
}

static void merge_task(void *context, int64_t index) {
  job *j = context;
  item it = find_item(j, index);
  key_tile tile;
  row_block *b = begin_task(j, &it, &tile);
  if (!b) return;
  int64_t from, to;
  key_range(b, &from, &to);
  for (int64_t split = from / SPLIT; split * SPLIT < to; split++)
    for (int64_t i = 0; i < blocks_of(j, &it); i++) {
      use_partial(b + i, j, index, split, i);
      merge_split(b + i);
    }
  end_task(b, j, &it);
}

/* Every page that will be read must be one. */
static int check_pages(const attention_args *a) {
  for (int64_t s = 0; s < a->batch; s++) {
    int64_t length = a->lengths[s], queries = a->offsets[s + 1] - a->offsets[s];
    if (queries == 0 || length == 0) continue; /* no keys: zeros */
    if (queries < 0 || queries > length || parts(length, a->page_size) > a->tables_width) return CK_BAD_PAGE;
    int64_t from = a->window ? most(0, length - queries - a->window + 1) : 0;
    for (int64_t page = from / a->page_size; page < parts(length, a->page_size); page++) {
      int32_t id = a->tables[s * a->table_row + page];
      if (id < 0 || id >= a->pages) return CK_BAD_PAGE;
    }
  }
  return CK_OK;
}

static int64_t count_items(const attention_args *a, int64_t rows_per_block, int64_t *first) {
  first[0] = 0;
  for (int64_t s = 0; s < a->batch; s++) first[s + 1] = first[s] + items_of(a, s, rows_per_block);
  return first[a->batch];
}

int ck_attention(const attention_args *a) {
  int bad = check_pages(a);
  if (bad) return bad;
  int64_t *first = ck_scratch(0, 8 * (a->batch + 1)), longest = 0;
  if (!first) return CK_NO_MEMORY;
  job j = {.args = a, .first_item = first, .rows_per_block = MOST_ROWS};
  j.use_amx = a->type == CK_BF16 && a->dim % 32 == 0 && ck_amx_usable();
  int64_t enough = ck_threads() > 1 ? 4 * ck_threads() : 1, items = count_items(a, MOST_ROWS, first);
  while (items < enough && j.rows_per_block > LEAST_ROWS) items = count_items(a, j.rows_per_block /= 2, first);
  for (int64_t s = 0; s < a->batch; s++) longest = most(longest, a->lengths[s]);
  if (items >= enough || longest <= SPLIT) {
    ck_parallel(whole_task, &j, items);
    return j.failed ? CK_NO_MEMORY : CK_OK;
  }
  j.splits = parts(longest, SPLIT);
  j.partial_size = j.rows_per_block * (a->dim + 2);
  j.partial = ck_scratch(2, 4 * (size_t)(items * j.splits * a->kv_heads * j.partial_size));
  if (!j.partial) return CK_NO_MEMORY;
  ck_parallel(split_task, &j, items * j.splits);
  ck_parallel(merge_task, &j, items);
  return j.failed ? CK_NO_MEMORY : CK_OK;
}
