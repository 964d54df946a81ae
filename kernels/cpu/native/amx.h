/* Tiles of the matrix unit: 8 of them, 16 rows of 64 bytes each.
 *
 * TDP(c, a, b) adds to the 16 by 16 floats of c the product of a (16 rows of 32 bf16) and b (16 rows of 16 pairs:
 * row r holds elements 2r and 2r + 1 of each of the 16 columns). Own wrappers, since those of the compiler
 * do not say that they read memory.
 */
#ifndef CK_AMX_H
#define CK_AMX_H

#include "common.h"

#ifdef CK_AMX

#define TLOAD(tile, base, stride)                                              \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                          \
                   :                                                           \
                   : "r"((const void *)(base)), "r"((long)(stride))            \
                   : "memory")
#define TSTORE(tile, base, stride)                                             \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                      \
                   :                                                           \
                   : "r"((void *)(base)), "r"((long)(stride))                  \
                   : "memory")
#define TZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TDP(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

typedef struct { uint8_t bytes[64]; } ALIGNED tile_config;

/* Tiles from `narrow_from` on have fewer rows. Every task sets the shape of the tiles and puts back what it found: the caller's thread has other users. */
INLINE tile_config tiles_begin_with(int narrow_from, int narrow_rows) {
  tile_config before, ours;
  __asm__ volatile("sttilecfg %0" : "=m"(before));
  memset(&ours, 0, sizeof ours);
  ours.bytes[0] = 1; /* palette */
  for (int tile = 0; tile < 8; tile++) {
    ours.bytes[16 + 2 * tile] = 64; /* bytes a row */
    ours.bytes[48 + tile] = (uint8_t)(tile < narrow_from ? 16 : narrow_rows);
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(ours));
  return before;
}

INLINE tile_config tiles_begin(void) { return tiles_begin_with(8, 16); }

INLINE void tiles_end(tile_config before) {
  if (before.bytes[0]) __asm__ volatile("ldtilecfg %0" ::"m"(before));
  else __asm__ volatile("tilerelease" ::);
}

#endif
#endif
