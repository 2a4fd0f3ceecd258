#include "tiles.h"

#include <stdint.h>

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileShapes;

static const TileShapes ours = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static _Thread_local TileShapes theirs;

void begin_tiles(void) {
    _tile_storeconfig(&theirs);
    _tile_loadconfig(&ours);
}

void end_tiles(void) {
    if (theirs.palette)
        _tile_loadconfig(&theirs);
    else
        _tile_release();
}
