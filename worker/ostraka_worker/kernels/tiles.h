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
