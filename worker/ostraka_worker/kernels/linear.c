#include "linear.h"
#include "vectors.h"

#include <string.h>

static int steps_of(int inner) { return (inner + STEP_BYTES - 1) / STEP_BYTES; }

size_t rounded_bytes(int64_t rows, int inner) {
    return (size_t)((rows + TILE_ROWS - 1) / TILE_ROWS) * steps_of(inner) * TILE_BYTES;
}

/* To -127 .. 127. A row of zeros has the scale 0. */
void round_row(const Rounded *rounded, int64_t row, const float *values) {
    const int inner = rounded->inner, steps = steps_of(inner);
    __m512 most = _mm512_setzero_ps(), other = most;
    for (int index = 0; index < inner; index += 32) {
        most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(values + index)));
        other = _mm512_max_ps(other, _mm512_abs_ps(_mm512_loadu_ps(values + index + 16)));
    }
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(most, other));
    rounded->scales[row] = largest / 127;
    const __m512 factor = _mm512_set1_ps(largest > 1e-30f ? 127 / largest : 0);
    char *to = rounded->tiles + (size_t)(row / TILE_ROWS) * steps * TILE_BYTES + row % TILE_ROWS * STEP_BYTES;
    for (int first = 0; first < inner; first += STEP_BYTES, to += TILE_BYTES)
        for (int part = 0; part < STEP_BYTES; part += 16) {
            __m512 rest = _mm512_setzero_ps();
            if (first + part < inner)
                rest = _mm512_loadu_ps(values + first + part);
            const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(rest, factor));
            _mm_store_si128((__m128i *)(to + part), _mm512_cvtsepi32_epi8(whole));
        }
}

/* Of what a step of the next panel will want, the part that this one of the pairs asks for. Without it a lone pair
 * took 1.2 times as long; every n-th line instead of n in a row, 1.15 times as long with several pairs. To ask faster (the
 * loop unrolled, 1.1 to 1.2 times), elsewhere among the loads and products (1.03 to 1.1), 128 KB ahead (1.1), or from one
 * product to the next and during the attention between (1.0) is no better. */
static inline void fetch(const char *next, int pair, int pairs) {
    const int all = 2 * TILE_BYTES / 64, lines = (all + pairs - 1) / pairs, first = pair * lines;
    for (int line = first; line < first + lines && line < all; line++)
        _mm_prefetch(next + line * 64, _MM_HINT_T1);
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
        fetch(next + (size_t)step * 2 * TILE_BYTES, pair, pairs);
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
        fetch(next + (size_t)step * 2 * TILE_BYTES, pair, pairs);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
    }
    _tile_stored(0, sums, PANEL * 4);
    _tile_stored(1, sums + 16, PANEL * 4);
}

/* Panel by panel, so that the weights pass once; all rows beside each of them. */
void multiply(const Product *product) {
    _Alignas(64) int32_t sums[PAIR_ROWS * PANEL];
    const Rounded *rows = product->rows;
    const int steps = steps_of(rows->inner), pairs = (int)((rows->rows + PAIR_ROWS - 1) / PAIR_ROWS);
    if (rows->rows < PAIR_ROWS) /* rows that are not there cost time too: 1.07 times, with 20 of 32 */
        shape_tiles(rows->rows > TILE_ROWS ? TILE_ROWS : (int)rows->rows, (int)((rows->rows - 1) % TILE_ROWS) + 1);
    for (int column = 0; column < product->weights->outer; column += PANEL) {
        const char *panel = product->weights->tiles + (size_t)column / PANEL * steps * 2 * TILE_BYTES;
        for (int pair = 0; pair < pairs; pair++) {
            const int64_t row = (int64_t)pair * PAIR_ROWS, left = rows->rows - row;
            const char *tiles = rows->tiles + (size_t)row / TILE_ROWS * steps * TILE_BYTES;
            (left > TILE_ROWS ? sum_pair : sum_single)(tiles, panel, steps, pair, pairs, sums);
            product->finish(product, column, row, left < PAIR_ROWS ? (int)left : PAIR_ROWS, sums);
        }
    }
    shape_tiles(TILE_ROWS, TILE_ROWS);
}

int64_t strip_floats(int64_t rows) { return (rows | 1) * PANEL; }

void take_row(const float *strips, int64_t rows, int64_t row, int width, float *to) {
    const float *from = strips + row * PANEL;
    for (int first = 0; first < width; first += PANEL, from += strip_floats(rows)) {
        _mm512_storeu_ps(to + first, _mm512_loadu_ps(from));
        _mm512_storeu_ps(to + first + 16, _mm512_loadu_ps(from + 16));
    }
}

void finish_plain(const Product *product, int column, int64_t row, int count, const int32_t *sums) {
    const __m512 left = _mm512_loadu_ps(product->weights->scales + column);
    const __m512 right = _mm512_loadu_ps(product->weights->scales + column + 16);
    float *to = product->out + column / PANEL * strip_floats(product->rows->rows) + row * PANEL;
    for (int index = 0; index < count; index++, sums += PANEL, to += PANEL) {
        const __m512 scale = _mm512_set1_ps(product->rows->scales[row + index]);
        const __m512 lower = _mm512_cvtepi32_ps(_mm512_load_si512(sums));
        const __m512 upper = _mm512_cvtepi32_ps(_mm512_load_si512(sums + 16));
        _mm512_store_ps(to, _mm512_mul_ps(lower, _mm512_mul_ps(scale, left)));
        _mm512_store_ps(to + 16, _mm512_mul_ps(upper, _mm512_mul_ps(scale, right)));
    }
}

/* x / (1 + 2 ** (-x log2(e))); the quotient is an estimate that one step of Newton's makes right to 1e-7. */
static inline __m512 silu(__m512 x) {
    const __m512 power = _mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)), _mm512_set1_ps(120));
    const __m512 one = _mm512_set1_ps(1), sum = _mm512_add_ps(one, power_of_two(power, 6));
    const __m512 estimate = _mm512_rcp14_ps(sum), error = _mm512_fnmadd_ps(sum, estimate, one);
    return _mm512_mul_ps(x, _mm512_fmadd_ps(estimate, error, estimate));
}

void finish_gated(const Product *product, int column, int64_t row, int count, const int32_t *sums) {
    const __m512 gate_scales = _mm512_loadu_ps(product->weights->scales + column);
    const __m512 through_scales = _mm512_loadu_ps(product->weights->scales + column + 16);
    float *strip = product->out + column / (2 * PANEL) * strip_floats(product->rows->rows);
    float *to = strip + row * PANEL + column / 2 % PANEL;
    for (int index = 0; index < count; index++, sums += PANEL, to += PANEL) {
        const __m512 scale = _mm512_set1_ps(product->rows->scales[row + index]);
        const __m512 gate = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), _mm512_mul_ps(scale, gate_scales));
        const __m512 through =
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 16)), _mm512_mul_ps(scale, through_scales));
        _mm512_store_ps(to, _mm512_mul_ps(silu(gate), through));
    }
}
