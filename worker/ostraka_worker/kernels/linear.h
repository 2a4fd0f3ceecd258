/* Products of rows and constant weights in 8 bits, on AMX tiles. The integer sums are exact, and each row has its own
 * scale: so a row's result is the same bits whatever rows stand beside it. */
#pragma once
#include "tiles.h"

#include <stdint.h>

enum { STEP_BYTES = 64, PANEL = 32, PAIR_ROWS = 2 * TILE_ROWS };

/* Of each PANEL outputs, for each STEP_BYTES inputs, two tiles side by side: [16 groups of 4 inputs, 16 outputs, 4].
 * build/tiled_weights.py makes them. */
typedef struct {
    const char *tiles;
    const float *scales; /* one an output */
    int inner, outer;
} Weights;

/* Rows in 8 bits, in tiles: of each 16 rows, for each STEP_BYTES of them, one. */
typedef struct {
    char *tiles;
    float *scales; /* one a row */
    int64_t rows;
    int inner;
} Rounded;

typedef struct Product Product;
struct Product {
    const Weights *weights;
    const Rounded *rows;
    /* takes the sums, [PAIR_ROWS, PANEL], of `count` rows from `row` and PANEL outputs from `column` */
    void (*finish)(const Product *product, int column, int64_t row, int count, const int32_t *sums);
    float *out; /* in strips */
};

size_t rounded_bytes(int64_t rows, int inner);
void round_row(const Rounded *rounded, int64_t row, const float *values);
void multiply(const Product *product);
/* out = sums in float */
void finish_plain(const Product *product, int column, int64_t row, int count, const int32_t *sums);
/* 16 outputs of a gate and 16 of what it lets through, in turn: out = silu(gate) * through, half as wide */
void finish_gated(const Product *product, int column, int64_t row, int count, const int32_t *sums);

/* What comes out of a product lies in strips of PANEL outputs, [rows, PANEL] each: so a panel's sums are written end to end.
 * Outputs side by side, 2 to 6 KB from row to row, took 1.1 times as long. */
/* From one strip to the next; an odd multiple of a row, or all strips would share the same lines of the caches. */
int64_t strip_floats(int64_t rows);
/* Puts a row's parts side by side. */
void take_row(const float *strips, int64_t rows, int64_t row, int width, float *to);
