#include "tiles.h"

#include <stdint.h>

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileShapes;

static _Thread_local TileShapes theirs;

void begin_tiles(void) {
    _tile_storeconfig(&theirs);
    shape_tiles(TILE_ROWS, TILE_ROWS);
}

void shape_tiles(int upper, int lower) {
    TileShapes ours = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}};
    const int rows[8] = {upper, upper, lower, lower, upper, lower, TILE_ROWS, TILE_ROWS};
    for (int tile = 0; tile < 8; tile++)
        ours.rows[tile] = (uint8_t)rows[tile];
    /* The intrinsic names its first 8 bytes alone: the compiler would leave the others unwritten. */
    __asm__ volatile("ldtilecfg %0" : : "m"(ours));
}

void end_tiles(void) {
    if (theirs.palette)
        _tile_loadconfig(&theirs);
    else
        _tile_release();
}
