/* All in float, on AVX-512. Rows lie in shares of equally many, of each 16 inputs [rows, 16]; a panel is [inputs, PANEL]. A sum
 * is one chain over all inputs: its bits do not know how many rows are read beside it.
 *
 * Weights that bfloat16 holds are read as that, half as many bytes: for few rows they are what a product waits for. They lie
 * as AMX wants them (linear_bf16.c), two inputs in a lane. The first share widens them as it goes, and leaves them to the
 * others. */
#include "linear.h"
#include "row_shares.h"
#include "tiles.h"
#include "vectors.h"

enum { LINE_BYTES = 64, AHEAD_INPUTS = 48, AHEAD_BYTES = 2 * TILE_BYTES, BLOCK_INPUTS = 16 };

/* Of so many inputs a widened panel is kept, 1 MB of the stack; of more, each share widens for itself. */
enum { MOST_WIDENED = 8192 };

static int64_t panel_elements(int64_t inner) { return inner * PANEL; }

static size_t laid_bytes(int64_t rows, int inner) { return (size_t)rows * inner * sizeof(float); }

static void lay_row(const Laid *laid, int64_t row, const float *values) {
    const int64_t rows = share_of(laid->rows), first = row / rows * rows, count = least(laid->rows - first, rows);
    float *to = (float *)laid->values + first * laid->inner + (row - first) * 16;
    for (int index = 0; index < laid->inner; index += 16, to += count * 16)
        _mm512_store_ps(to, _mm512_loadu_ps(values + index));
}

typedef struct {
    const float *x;
    const char *panel;
    int inner;
    const char *next; /* where the next panel's weights are to be asked for, `step` bytes further for each input */
    int step;
    float *widened; /* where the panel's weights are left in float, or NULL */
    float *sums;
} Share;

/* 16 outputs' weights for an input: float, or one of the two halves of each lane. */
static inline __m512 load(const int is_half, const int is_odd, const char *at) {
    if (!is_half)
        return _mm512_loadu_ps(at);
    const __m512i pair = _mm512_loadu_si512(at);
    return _mm512_castsi512_ps(is_odd ? _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(pair, 16));
}

/* Where a block of inputs begins in a panel. */
static inline const char *block_of(const int is_half, const char *panel, int block) {
    const int pairs = BLOCK_INPUTS / 2;
    return panel + (is_half ? block / 2 * 2 * TILE_BYTES + block % 2 * pairs * LINE_BYTES : block * BLOCK_INPUTS * PANEL * 4);
}

/* This panel's next inputs are asked for into the first cache: 12, 20 and 174 rows took 0.86, 0.95 and 0.97 of the time they
 * took without; 8, 16, 32, 64 or 128 inputs ahead up to 0.04 more. (With weights in pages of 4 KB it made no difference.)
 * What was asked for of the next panel line by line, in order, came in time: without it 20 rows took 1.5 times as long, with
 * every other line 1.5, 16 KB ahead 1.2. */
static inline __attribute__((always_inline)) void fetch(const int is_half, const int is_odd, const Share *share, const char *next,
                                                        const char *left, const char *right) {
    _mm_prefetch(next, _MM_HINT_T1);
    if (share->step > LINE_BYTES)
        _mm_prefetch(next + LINE_BYTES, _MM_HINT_T1);
    if (is_half) {
        _mm_prefetch((is_odd ? right : left) + AHEAD_BYTES, _MM_HINT_T0);
        return;
    }
    _mm_prefetch(left + AHEAD_INPUTS * PANEL * 4, _MM_HINT_T0);
    _mm_prefetch(right + AHEAD_INPUTS * PANEL * 4, _MM_HINT_T0);
}

static inline __attribute__((always_inline)) void sum_rows(const int rows, const int is_half, const Share *share) {
    const float *x = share->x;
    const char *next = share->next;
    float *widened = share->widened;
    __m512 lower[MOST_SHARED], upper[MOST_SHARED];
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++)
        lower[row] = upper[row] = _mm512_setzero_ps();
    for (int block = 0; block < share->inner / BLOCK_INPUTS; block++, x += rows * BLOCK_INPUTS) {
        const char *left = block_of(is_half, share->panel, block);
#pragma GCC unroll 2
        for (int input = 0; input < BLOCK_INPUTS; input++, next += share->step) {
            const int is_odd = input % 2;
            const char *right = left + (is_half ? TILE_BYTES : LINE_BYTES);
            fetch(is_half, is_odd, share, next, left, right);
            const __m512 first = load(is_half, is_odd, left), second = load(is_half, is_odd, right);
            if (is_half && widened) {
                _mm512_store_ps(widened, first);
                _mm512_store_ps(widened + 16, second);
                widened += PANEL;
            }
            if (!is_half)
                left += 2 * LINE_BYTES;
            else if (is_odd)
                left += LINE_BYTES;
#pragma GCC unroll 14
            for (int row = 0; row < rows; row++) {
                const __m512 value = _mm512_set1_ps(x[row * BLOCK_INPUTS + input]);
                lower[row] = _mm512_fmadd_ps(value, first, lower[row]);
                upper[row] = _mm512_fmadd_ps(value, second, upper[row]);
            }
        }
    }
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++) {
        _mm512_store_ps(share->sums + row * PANEL, lower[row]);
        _mm512_store_ps(share->sums + row * PANEL + 16, upper[row]);
    }
}

typedef void Sum(const Share *share);

#define SUM(rows)                                                              \
    static void sum_##rows(const Share *share) { sum_rows(rows, 0, share); }      \
    static void sum_halves_##rows(const Share *share) { sum_rows(rows, 1, share); }
EACH_SHARE(SUM)

static Sum *const sum_of[2][MOST_SHARED + 1] = {BY_ROWS(sum_), BY_ROWS(sum_halves_)};

static void gate(const float *sums, int count, float *to) {
    for (int row = 0; row < count; row++, sums += PANEL, to += PANEL)
        _mm512_store_ps(to, _mm512_mul_ps(silu(_mm512_load_ps(sums)), _mm512_load_ps(sums + 16)));
}

/* All rows beside one panel. Each share asks for its part of the next. `widened`: where the first leaves it to the others, or
 * NULL. */
static inline __attribute__((always_inline)) void multiply_panel(
    const int is_half, const Product *product, size_t index, float *widened) {
    _Alignas(64) float sums[MOST_SHARED * PANEL];
    const Laid *laid = product->rows;
    const int inner = laid->inner, rows = share_of(laid->rows), shares = (int)((laid->rows + rows - 1) / rows);
    const int bytes = PANEL * (int)(is_half ? sizeof(uint16_t) : sizeof(float));
    const char *panel = (const char *)product->weights->panels + index * inner * bytes;
    Share share = {.panel = panel, .inner = inner, .next = panel + inner * bytes, .step = bytes / shares};
    share.widened = widened;
    for (int64_t row = 0; row < laid->rows; row += rows, share.next += inner * share.step) {
        const int count = least(laid->rows - row, rows), is_first = !row;
        float *to = place(product, (int)index * PANEL, row);
        share.x = (const float *)laid->values + row * inner;
        share.sums = product->is_gated ? sums : to;
        sum_of[is_half && (is_first || !widened)][count](&share);
        if (widened)
            share.panel = (const char *)widened;
        if (product->is_gated)
            gate(sums, count, to);
    }
}

static void multiply_floats(void *product, size_t index) { multiply_panel(0, product, index, NULL); }

/* No more of the stack than is used: some compilers have each of its pages written to at every call. */
static void multiply_halves(void *data, size_t index) {
    const Product *product = data;
    const int64_t inner = product->rows->inner;
    float *widened = NULL;
    if (product->rows->rows > MOST_SHARED && inner <= MOST_WIDENED)
        widened = __builtin_alloca_with_align((size_t)panel_elements(inner) * sizeof(float), 64 * 8);
    multiply_panel(1, product, index, widened);
}

/* Panel by panel, so that the weights pass once. A sum does not know which thread made it. */
static void multiply_all(const Product *product, void (*panel)(void *, size_t)) {
    const Threads *threads = product->threads;
    threads->run(threads->context, panel, (size_t)product->weights->outer / PANEL, (void *)product);
}

static void multiply(const Product *product) { multiply_all(product, multiply_floats); }

static void multiply_widened(const Product *product) { multiply_all(product, multiply_halves); }

#define IN_FLOAT                                                                                                  \
    .is_scaled = 0, .panel_elements = panel_elements, .laid_bytes = laid_bytes, .lay_row = lay_row,              \
    .kept_bytes = sizeof(float), .keep = keep_floats, .begin = nothing, .end = nothing
const Linears FP32_LINEARS = {IN_FLOAT, .multiply = multiply};
const Linears BF16_LINEARS = {IN_FLOAT, .multiply = multiply_widened};
