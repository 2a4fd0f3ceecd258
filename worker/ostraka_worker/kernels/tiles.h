/* AMX tiles, as all our kernels use them: eight of up to 16 rows of 64 bytes. 0 to 3 are sums, of the upper rows the first
 * two; 4 and 5 are the upper and the lower rows; 6 and 7 what these are multiplied with. */
#pragma once
#include <immintrin.h>
#include <stddef.h>

enum { TILE_ROWS = 16, TILE_BYTES = 1024 };

/* As the intrinsic does, but with all memory as its input: else the compiler may put off the stores before it. */
#define LOAD(tile, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((size_t)(stride)) : "memory")

/* The runtime's own kernels leave their shapes in place between calls, and so must we. */
void begin_tiles(void);
void end_tiles(void);
/* Between the two: how many rows there are. They begin with all 16. */
void shape_tiles(int upper, int lower);

/* Of what a step of the next panel will want, the part that this one of the pairs asks for. Without it a lone pair
 * took 1.2 times as long; every n-th line instead of n in a row, 1.15 times as long with several pairs. To ask faster (the
 * loop unrolled, 1.1 to 1.2 times), elsewhere among the loads and products (1.03 to 1.1), 128 KB ahead (1.1), or from one
 * product to the next and during the attention between (1.0) is no better. */
static inline void fetch_share(const char *next, int pair, int pairs) {
    const int all = 2 * TILE_BYTES / 64, lines = (all + pairs - 1) / pairs, first = pair * lines;
    for (int line = first; line < first + lines && line < all; line++)
        _mm_prefetch(next + line * 64, _MM_HINT_T1);
}
