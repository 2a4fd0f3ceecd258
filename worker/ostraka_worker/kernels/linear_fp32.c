/* All in float, on AVX-512. Rows lie in tiles of equally many, of each 16 inputs [rows, 16]; a panel is [inputs, PANEL]. A sum
 * is one chain over all inputs: its bits do not know how many rows share its tile. */
#include "linear.h"
#include "vectors.h"

#include <string.h>

/* More, and the sums do not fit the registers. */
enum { MOST_ROWS = 14, LINE_BYTES = 64, AHEAD_INPUTS = 48 };

/* In even shares: of 20 rows two times 10. Of all rows, the last tile has what is left. */
static int tile_rows(int64_t rows) {
    const int64_t tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
    return (int)((rows + tiles - 1) / tiles);
}

static int least(int64_t one, int64_t other) { return (int)(one < other ? one : other); }

static int64_t panel_elements(int64_t inner) { return inner * PANEL; }

static size_t laid_bytes(int64_t rows, int inner) { return (size_t)rows * inner * sizeof(float); }

static void lay_row(const Laid *laid, int64_t row, const float *values) {
    const int64_t rows = tile_rows(laid->rows), first = row / rows * rows, count = least(laid->rows - first, rows);
    float *to = (float *)laid->values + first * laid->inner + (row - first) * 16;
    for (int index = 0; index < laid->inner; index += 16, to += count * 16)
        _mm512_store_ps(to, _mm512_loadu_ps(values + index));
}

/* This panel's next inputs are asked for into the first cache: 12, 20 and 174 rows took 0.86, 0.95 and 0.97 of the time they
 * took without; 8, 16, 32, 64 or 128 inputs ahead up to 0.04 more. (With weights in pages of 4 KB it made no difference.)
 * `next`: where the next panel's weights are to be asked for, `step` bytes further for each input. What was asked for line by
 * line, in order, came in time: without it 20 rows took 1.5 times as long, with every other line 1.5, 16 KB ahead 1.2. */
static inline __attribute__((always_inline)) void sum_rows(
    const int rows, const float *x, const float *panel, int inner, const char *next, int step, float *sums) {
    __m512 even[MOST_ROWS], odd[MOST_ROWS];
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++)
        even[row] = odd[row] = _mm512_setzero_ps();
    for (const float *end = panel + (size_t)inner * PANEL; panel < end; x += (rows - 1) * 16)
        for (const float *stop = x + 16; x < stop; x++, panel += PANEL, next += step) {
            _mm_prefetch(next, _MM_HINT_T1);
            if (step > LINE_BYTES)
                _mm_prefetch(next + LINE_BYTES, _MM_HINT_T1);
            _mm_prefetch((const char *)(panel + AHEAD_INPUTS * PANEL), _MM_HINT_T0);
            _mm_prefetch((const char *)(panel + AHEAD_INPUTS * PANEL + 16), _MM_HINT_T0);
            const __m512 left = _mm512_loadu_ps(panel), right = _mm512_loadu_ps(panel + 16);
#pragma GCC unroll 14
            for (int row = 0; row < rows; row++) {
                const __m512 value = _mm512_set1_ps(x[row * 16]);
                even[row] = _mm512_fmadd_ps(value, left, even[row]);
                odd[row] = _mm512_fmadd_ps(value, right, odd[row]);
            }
        }
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++) {
        _mm512_store_ps(sums + row * PANEL, even[row]);
        _mm512_store_ps(sums + row * PANEL + 16, odd[row]);
    }
}

typedef void Sum(const float *x, const float *panel, int inner, const char *next, int step, float *sums);

#define SUM(rows)                                                                                                      \
    static void sum_##rows(const float *x, const float *panel, int inner, const char *next, int step, float *sums) { \
        sum_rows(rows, x, panel, inner, next, step, sums);                                                             \
    }
SUM(1) SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8) SUM(9) SUM(10) SUM(11) SUM(12) SUM(13) SUM(14)

static Sum *const sum_of[MOST_ROWS + 1] = {NULL,  sum_1, sum_2, sum_3,  sum_4,  sum_5,  sum_6, sum_7,
                                           sum_8, sum_9, sum_10, sum_11, sum_12, sum_13, sum_14};

static void gate(const float *sums, int count, float *to) {
    for (int row = 0; row < count; row++, sums += PANEL, to += PANEL)
        _mm512_store_ps(to, _mm512_mul_ps(silu(_mm512_load_ps(sums)), _mm512_load_ps(sums + 16)));
}

/* All rows beside one panel. Each tile asks for its share of the next. */
static void multiply_panel(void *data, size_t index) {
    _Alignas(64) float sums[MOST_ROWS * PANEL];
    const Product *product = data;
    const Laid *laid = product->rows;
    const int inner = laid->inner, rows = tile_rows(laid->rows), tiles = (int)((laid->rows + rows - 1) / rows);
    const int step = PANEL * (int)sizeof(float) / tiles;
    const float *panel = (const float *)product->weights->panels + index * panel_elements(inner);
    const char *next = (const char *)(panel + panel_elements(inner));
    for (int64_t row = 0; row < laid->rows; row += rows, next += inner * step) {
        const int count = least(laid->rows - row, rows);
        float *to = place(product, (int)index * PANEL, row);
        const float *x = (const float *)laid->values + row * inner;
        sum_of[count](x, panel, inner, next, step, product->is_gated ? sums : to);
        if (product->is_gated)
            gate(sums, count, to);
    }
}

/* Panel by panel, so that the weights pass once. A sum does not know which thread made it. */
static void multiply(const Product *product) {
    const Threads *threads = product->threads;
    threads->run(threads->context, multiply_panel, (size_t)product->weights->outer / PANEL, (void *)product);
}

static void keep(const float *from, void *to, int64_t count) { memcpy(to, from, (size_t)count * sizeof(float)); }

static void nothing(void) {}

const Linears FP32_LINEARS = {
    .is_scaled = 0, .panel_elements = panel_elements, .laid_bytes = laid_bytes, .lay_row = lay_row, .multiply = multiply,
    .kept_bytes = sizeof(float), .keep = keep, .begin = nothing, .end = nothing,
};
