/* Rows in tiles of equally many, as AVX-512 reads them: their sums, of PANEL outputs, stay in its registers. */
#pragma once
#include <stdint.h>

/* More, and the sums do not fit the registers. */
enum { MOST_ROWS = 14 };

static inline int least(int64_t one, int64_t other) { return (int)(one < other ? one : other); }

/* In even shares: of 20 rows two times 10. Of all rows, the last tile has what is left. */
static inline int tile_rows(int64_t rows) {
    const int64_t tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
    return (int)((rows + tiles - 1) / tiles);
}
