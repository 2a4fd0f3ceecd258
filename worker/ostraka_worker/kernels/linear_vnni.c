/* In 8 bits, on AVX-512 VNNI, which multiplies bytes without a sign by bytes with one. So rows lie shifted by 128, and a sum
 * begins with what that adds too much: -128 times the sum of an output's weights, its offset. Then it is exact, and AMX's own
 * (linear_int8.c), whose panels it reads. Rows lie in shares of equally many, of each STEP_BYTES inputs [rows, STEP_BYTES]. */
#include "int8.h"
#include "linear.h"
#include "row_shares.h"
#include "tiles.h"
#include "vectors.h"

/* Inputs of a lane; bytes of a panel for so many inputs. */
enum { LANE = 4, LANE_BYTES = LANE * PANEL };

static size_t row_bytes(int inner) { return (size_t)steps_of(inner) * STEP_BYTES; }

static size_t laid_bytes(int64_t rows, int inner) { return (size_t)rows * row_bytes(inner); }

static void lay_row(const Laid *laid, int64_t row, const float *values) {
    const int64_t rows = share_of(laid->rows), first = row / rows * rows;
    const size_t stride = (size_t)least(laid->rows - first, rows) * STEP_BYTES;
    char *to = (char *)laid->values + first * row_bytes(laid->inner) + (row - first) * STEP_BYTES;
    laid->scales[row] = round_row(values, laid->inner, to, stride, _mm_set1_epi8((char)0x80));
}

typedef struct {
    const char *rows, *panel;
    const int32_t *offsets;
    int steps;
    const char *next; /* where the next panel's weights are to be asked for, `ask` bytes further for each lane */
    int ask;
    int32_t *sums; /* [rows, PANEL] */
} Share;

static inline __attribute__((always_inline)) void sum_rows(const int rows, const Share *share) {
    const char *x = share->rows, *left = share->panel, *next = share->next;
    __m512i lower[MOST_SHARED], upper[MOST_SHARED];
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++) {
        lower[row] = _mm512_loadu_si512(share->offsets);
        upper[row] = _mm512_loadu_si512(share->offsets + 16);
    }
    for (int step = 0; step < share->steps; step++, x += rows * STEP_BYTES, left += TILE_BYTES)
        for (int lane = 0; lane < STEP_BYTES; lane += LANE, left += STEP_BYTES, next += share->ask) {
            const __m512i first = _mm512_loadu_si512(left), second = _mm512_loadu_si512(left + TILE_BYTES);
            _mm_prefetch(next, _MM_HINT_T1);
            if (share->ask > STEP_BYTES)
                _mm_prefetch(next + STEP_BYTES, _MM_HINT_T1);
#pragma GCC unroll 14
            for (int row = 0; row < rows; row++) {
                int32_t four;
                memcpy(&four, x + row * STEP_BYTES + lane, sizeof four);
                const __m512i values = _mm512_set1_epi32(four);
                lower[row] = _mm512_dpbusd_epi32(lower[row], values, first);
                upper[row] = _mm512_dpbusd_epi32(upper[row], values, second);
            }
        }
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++) {
        _mm512_store_si512(share->sums + row * PANEL, lower[row]);
        _mm512_store_si512(share->sums + row * PANEL + 16, upper[row]);
    }
}

typedef void Sum(const Share *share);

#define SUM(rows) \
    static void sum_##rows(const Share *share) { sum_rows(rows, share); }
EACH_SHARE(SUM)

static Sum *const sum_of[MOST_SHARED + 1] = BY_ROWS(sum_);

/* All rows beside one panel. Each share asks for its part of the next. */
static void multiply_panel(void *data, size_t index) {
    _Alignas(64) int32_t sums[MOST_SHARED * PANEL];
    const Product *product = data;
    const Laid *laid = product->rows;
    const int rows = share_of(laid->rows), shares = (int)((laid->rows + rows - 1) / rows), column = (int)index * PANEL;
    const size_t bytes = (size_t)panel_elements(laid->inner);
    Share share = {.panel = (const char *)product->weights->panels + index * bytes, .steps = steps_of(laid->inner)};
    share.offsets = product->weights->offsets + column;
    share.next = share.panel + bytes;
    share.ask = LANE_BYTES / shares;
    share.sums = sums;
    for (int64_t row = 0; row < laid->rows; row += rows, share.next += bytes / LANE_BYTES * share.ask) {
        const int count = least(laid->rows - row, rows);
        share.rows = (const char *)laid->values + row * row_bytes(laid->inner);
        sum_of[count](&share);
        finish(product, column, row, count, sums);
    }
}

/* Panel by panel, so that the weights pass once. A sum does not know which thread made it. */
static void multiply(const Product *product) {
    const Threads *threads = product->threads;
    threads->run(threads->context, multiply_panel, (size_t)product->weights->outer / PANEL, (void *)product);
}

#define ON_VNNI                                                                                                    \
    .is_scaled = 1, .is_shifted = 1, .panel_elements = panel_elements, .laid_bytes = laid_bytes, .lay_row = lay_row, \
    .multiply = multiply, .begin = nothing, .end = nothing
const Linears INT8_VNNI_LINEARS = {ON_VNNI, .kept_bytes = sizeof(float), .keep = keep_floats};
const Linears INT8_VNNI_BF16_LINEARS = {ON_VNNI, .kept_bytes = sizeof(uint16_t), .keep = keep_halves};
