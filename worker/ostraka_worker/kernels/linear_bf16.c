/* Weights in bfloat16, all else in float, on AMX tiles. A float is the sum of three values of bfloat16, of 8 bits each: what it
 * rounds to, what its rest rounds to, and the rest of that; but for parts below 1e-38, which are taken for zero, and from
 * 3.39e38 on, where the first is infinite and the sum no number. Their products with a weight are exact in float; so a sum
 * differs from one in float by the order of its roundings alone. Of a panel, for each STEP_INPUTS, two tiles lie side by side:
 * [16 pairs of inputs, 16 outputs, 2]. A row lies in tiles, of each 16 rows for each STEP_INPUTS of them PARTS. */
#include "linear.h"
#include "tiles.h"
#include "vectors.h"

/* A group of panels reads a few steps of the rows, which so stay in the first cache, then the next. All steps of one panel at
 * a time, 1, 20 and 32 rows took 1.25, 1.3 and 1.4 times as long, 128 and 256 as long; 1, 3 or 6 steps, or 3, 12 or 18 panels,
 * up to 1.1 times. Of a lone pair's weights, what comes AHEAD blocks later is asked for: 1 block took 1.15 times as long, 2 to
 * 12 no more than 1.05. */
enum { STEP_INPUTS = 32, PARTS = 3, PAIR_ROWS = 2 * TILE_ROWS, GROUP = 6, STEPS = 2, AHEAD = 4 };

static int64_t panel_elements(int64_t inner) { return inner * PANEL; }

static size_t tile_bytes(int inner) { return (size_t)inner / STEP_INPUTS * PARTS * TILE_BYTES; }

static size_t laid_bytes(int64_t rows, int inner) { return (size_t)(rows + TILE_ROWS - 1) / TILE_ROWS * tile_bytes(inner); }

static inline void split(__m512 rest, char *to) {
    for (int part = 0; part < PARTS; part++, to += TILE_BYTES) {
        const __m256i halves = (__m256i)_mm512_cvtneps_pbh(rest);
        _mm256_store_si256((__m256i *)to, halves);
        rest = _mm512_sub_ps(rest, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
}

static void lay_row(const Laid *laid, int64_t row, const float *values) {
    char *to = (char *)laid->values + row / TILE_ROWS * tile_bytes(laid->inner) + row % TILE_ROWS * STEP_INPUTS * 2;
    for (int index = 0; index < laid->inner; index += STEP_INPUTS, to += PARTS * TILE_BYTES) {
        split(_mm512_loadu_ps(values + index), to);
        split(_mm512_loadu_ps(values + index + 16), to + 32);
    }
}

/* A block: at most STEPS steps of one panel beside a pair of tiles of rows. */
typedef struct {
    const char *upper, *lower, *panel;
    const char *next; /* of the weights, what is asked for meanwhile; the pairs share it */
    int steps, pair, pairs, is_first;
    float *sums; /* [PAIR_ROWS, PANEL] */
} Block;

static void sum_pair(const Block *block) {
    const char *upper = block->upper, *lower = block->lower, *panel = block->panel;
    if (block->is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        LOAD(0, block->sums, PANEL * 4);
        LOAD(1, block->sums + 16, PANEL * 4);
        LOAD(2, block->sums + TILE_ROWS * PANEL, PANEL * 4);
        LOAD(3, block->sums + TILE_ROWS * PANEL + 16, PANEL * 4);
    }
    for (int step = 0; step < block->steps; step++, panel += 2 * TILE_BYTES) {
        LOAD(6, panel, 64);
        LOAD(7, panel + TILE_BYTES, 64);
        fetch_share(block->next + (size_t)step * 2 * TILE_BYTES, block->pair, block->pairs);
        for (int part = 0; part < PARTS; part++, upper += TILE_BYTES, lower += TILE_BYTES) {
            LOAD(4, upper, 64);
            LOAD(5, lower, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, block->sums, PANEL * 4);
    _tile_stored(1, block->sums + 16, PANEL * 4);
    _tile_stored(2, block->sums + TILE_ROWS * PANEL, PANEL * 4);
    _tile_stored(3, block->sums + TILE_ROWS * PANEL + 16, PANEL * 4);
}

/* The last 16 rows, or fewer. */
static void sum_single(const Block *block) {
    const char *upper = block->upper, *panel = block->panel;
    if (block->is_first) {
        _tile_zero(0);
        _tile_zero(1);
    } else {
        LOAD(0, block->sums, PANEL * 4);
        LOAD(1, block->sums + 16, PANEL * 4);
    }
    for (int step = 0; step < block->steps; step++, panel += 2 * TILE_BYTES) {
        LOAD(6, panel, 64);
        LOAD(7, panel + TILE_BYTES, 64);
        fetch_share(block->next + (size_t)step * 2 * TILE_BYTES, block->pair, block->pairs);
        for (int part = 0; part < PARTS; part++, upper += TILE_BYTES) {
            LOAD(4, upper, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
    }
    _tile_stored(0, block->sums, PANEL * 4);
    _tile_stored(1, block->sums + 16, PANEL * 4);
}

/* Puts the sums of `count` rows from `row` where they belong. */
static void finish(const Product *product, int column, int64_t row, int count, const float *sums) {
    float *to = place(product, column, row);
    for (int index = 0; index < count; index++, sums += PANEL, to += PANEL) {
        const __m512 left = _mm512_load_ps(sums), right = _mm512_load_ps(sums + 16);
        _mm512_store_ps(to, product->is_gated ? _mm512_mul_ps(silu(left), right) : left);
        if (!product->is_gated)
            _mm512_store_ps(to + 16, right);
    }
}

/* The weights of a group of panels, by blocks of STEPS in the order in which a pair of tiles reads them. */
typedef struct {
    const char *weights;
    int panels, steps;
} Group;

static size_t panel_bytes(const Group *group) { return (size_t)group->steps * 2 * TILE_BYTES; }

static int blocks_of(const Group *group) { return (group->steps + STEPS - 1) / STEPS * group->panels; }

/* Past its last block, where the next group's will be, if there is one that is as large: to be asked for, not to be read. */
static const char *block_at(const Group *group, int index) {
    const int blocks = blocks_of(group), within = index % blocks;
    const char *weights = group->weights + index / blocks * group->panels * panel_bytes(group);
    return weights + within % group->panels * panel_bytes(group) + (size_t)(within / group->panels) * STEPS * 2 * TILE_BYTES;
}

static void multiply_pair(const Product *product, const Group *group, int first, int pair, int pairs) {
    _Alignas(64) float sums[GROUP * PAIR_ROWS * PANEL];
    const Laid *laid = product->rows;
    const int64_t row = (int64_t)pair * PAIR_ROWS, left = laid->rows - row;
    const int blocks = blocks_of(group);
    Block block = {.pair = pair, .pairs = pairs};
    for (int index = 0; index < blocks; index++) {
        const int panel = index % group->panels, step = index / group->panels * STEPS;
        block.is_first = !step;
        block.steps = least(group->steps - step, STEPS);
        block.upper = (const char *)laid->values + row / TILE_ROWS * tile_bytes(laid->inner) + (size_t)step * PARTS * TILE_BYTES;
        block.lower = block.upper + tile_bytes(laid->inner);
        block.panel = block_at(group, index);
        block.next = block_at(group, index + (pairs > 1 ? blocks : AHEAD));
        block.sums = sums + panel * PAIR_ROWS * PANEL;
        (left > TILE_ROWS ? sum_pair : sum_single)(&block);
    }
    for (int panel = 0; panel < group->panels; panel++)
        finish(product, (first + panel) * PANEL, row, least(left, PAIR_ROWS), sums + panel * PAIR_ROWS * PANEL);
}

/* On any thread: so the tiles are shaped here. */
static void multiply_group(void *data, size_t index) {
    const Product *product = data;
    const int first = (int)index * GROUP, steps = product->rows->inner / STEP_INPUTS;
    Group group = {NULL, least(product->weights->outer / PANEL - first, GROUP), steps};
    group.weights = (const char *)product->weights->panels + first * panel_bytes(&group);
    const int64_t rows = product->rows->rows;
    const int pairs = (int)((rows + PAIR_ROWS - 1) / PAIR_ROWS);
    begin_tiles();
    if (rows < PAIR_ROWS) /* rows that are not there cost time too */
        shape_tiles(least(rows, TILE_ROWS), (int)((rows - 1) % TILE_ROWS) + 1);
    for (int pair = 0; pair < pairs; pair++)
        multiply_pair(product, &group, first, pair, pairs);
    end_tiles();
}

/* Group by group, so that the weights pass once. A sum does not know which thread made it. */
static void multiply(const Product *product) {
    const int panels = product->weights->outer / PANEL;
    product->threads->run(product->threads->context, multiply_group, (size_t)(panels + GROUP - 1) / GROUP, (void *)product);
}

const Linears BF16_AMX_LINEARS = {
    .is_scaled = 0, .panel_elements = panel_elements, .laid_bytes = laid_bytes, .lay_row = lay_row, .multiply = multiply,
    .kept_bytes = sizeof(float), .keep = keep_floats, .begin = nothing, .end = nothing,
};
