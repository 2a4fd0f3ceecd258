/* On AMX tiles. A row lies in tiles, of each 16 rows for each STEP_BYTES of them one; a panel is, for each STEP_BYTES inputs,
 * two tiles side by side: [16 groups of 4 inputs, 16 outputs, 4]. */
#include "int8.h"
#include "linear.h"
#include "tiles.h"

enum { PAIR_ROWS = 2 * TILE_ROWS };

static size_t laid_bytes(int64_t rows, int inner) {
    return (size_t)((rows + TILE_ROWS - 1) / TILE_ROWS) * steps_of(inner) * TILE_BYTES;
}

static void lay_row(const Laid *rounded, int64_t row, const float *values) {
    const size_t tile = (size_t)(row / TILE_ROWS) * steps_of(rounded->inner);
    char *to = (char *)rounded->values + tile * TILE_BYTES + row % TILE_ROWS * STEP_BYTES;
    rounded->scales[row] = round_row(values, rounded->inner, to, TILE_BYTES, _mm_setzero_si128());
}

static void sum_pair(const char *rows, const char *panel, int steps, int pair, int pairs, int32_t *sums) {
    const char *lower = rows + (size_t)steps * TILE_BYTES, *next = panel + (size_t)steps * 2 * TILE_BYTES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int step = 0; step < steps; step++, rows += TILE_BYTES, lower += TILE_BYTES, panel += 2 * TILE_BYTES) {
        LOAD(4, rows, STEP_BYTES);
        LOAD(6, panel, STEP_BYTES);
        LOAD(7, panel + TILE_BYTES, STEP_BYTES);
        LOAD(5, lower, STEP_BYTES);
        fetch_share(next + (size_t)step * 2 * TILE_BYTES, pair, pairs);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums, PANEL * 4);
    _tile_stored(1, sums + 16, PANEL * 4);
    _tile_stored(2, sums + TILE_ROWS * PANEL, PANEL * 4);
    _tile_stored(3, sums + TILE_ROWS * PANEL + 16, PANEL * 4);
}

/* The last 16 rows, or fewer. */
static void sum_single(const char *rows, const char *panel, int steps, int pair, int pairs, int32_t *sums) {
    const char *next = panel + (size_t)steps * 2 * TILE_BYTES;
    _tile_zero(0);
    _tile_zero(1);
    for (int step = 0; step < steps; step++, rows += TILE_BYTES, panel += 2 * TILE_BYTES) {
        LOAD(4, rows, STEP_BYTES);
        LOAD(6, panel, STEP_BYTES);
        LOAD(7, panel + TILE_BYTES, STEP_BYTES);
        fetch_share(next + (size_t)step * 2 * TILE_BYTES, pair, pairs);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
    }
    _tile_stored(0, sums, PANEL * 4);
    _tile_stored(1, sums + 16, PANEL * 4);
}

/* Panel by panel, so that the weights pass once; all rows beside each of them. */
static void multiply(const Product *product) {
    _Alignas(64) int32_t sums[PAIR_ROWS * PANEL];
    const Laid *rows = product->rows;
    const int steps = steps_of(rows->inner), pairs = (int)((rows->rows + PAIR_ROWS - 1) / PAIR_ROWS);
    if (rows->rows < PAIR_ROWS) /* rows that are not there cost time too: 1.07 times, with 20 of 32 */
        shape_tiles(rows->rows > TILE_ROWS ? TILE_ROWS : (int)rows->rows, (int)((rows->rows - 1) % TILE_ROWS) + 1);
    for (int column = 0; column < product->weights->outer; column += PANEL) {
        const char *panel = (const char *)product->weights->panels + (size_t)column / PANEL * steps * 2 * TILE_BYTES;
        for (int pair = 0; pair < pairs; pair++) {
            const int64_t row = (int64_t)pair * PAIR_ROWS, left = rows->rows - row;
            const char *tiles = (const char *)rows->values + (size_t)row / TILE_ROWS * steps * TILE_BYTES;
            (left > TILE_ROWS ? sum_pair : sum_single)(tiles, panel, steps, pair, pairs, sums);
            const int count = left < PAIR_ROWS ? (int)left : PAIR_ROWS;
            finish(product, column, row, count, sums);
        }
    }
    shape_tiles(TILE_ROWS, TILE_ROWS);
}

const Linears INT8_LINEARS = {
    .is_scaled = 1, .panel_elements = panel_elements, .laid_bytes = laid_bytes, .lay_row = lay_row, .multiply = multiply,
    .kept_bytes = sizeof(uint16_t), .keep = keep_halves, .begin = begin_tiles, .end = end_tiles,
};
