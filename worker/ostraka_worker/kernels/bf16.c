/* Keys, values and odds in bfloat16, products and sums in float: on AMX tiles, or two products a lane with AVX-512 (dots).
 * Scores lie [keys, columns], so that keys need no packing and the softmax no sum across lanes. */
#include "attention.h"
#include "held.h"
#include "softmax.h"
#include "tiles.h"

#include <string.h>

enum { PAIR_DIMS = 32, AHEAD_KEYS = 64 };

/* The upper half of each lane is `high` rounded, the lower one `low`. Neither is negative. */
static inline __m512i round_pair(__m512 low, __m512 high) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i right = _mm512_srli_epi32(_mm512_add_epi32((__m512i)low, half), 16);
    return _mm512_ternarylogic_epi32(_mm512_add_epi32((__m512i)high, half), upper, right, 0xea); /* a & b | c */
}

void round_to_bf16(const float *from, uint16_t *to, int64_t count) {
    int64_t index = 0;
    for (; index + 16 <= count; index += 16)
        _mm256_storeu_si256((__m256i *)(to + index), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + index)));
    const __mmask16 rest = (__mmask16)((1u << (count - index)) - 1);
    if (rest)
        _mm256_mask_storeu_epi16(to + index, rest, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, from + index)));
}

/* Of each 32 dims two tiles, one for each half of the columns: 16 pairs of dims by 16 columns. */
static void pack_query(Columns *columns, const float *const *rows) {
    /* Scores are in powers of two, so that the softmax needs no product: log2(e) / sqrt(dims). */
    const __m512 scale = _mm512_set1_ps(1.44269504f / __builtin_sqrtf((float)columns->dims));
    for (int half = 0; half < 2; half++)
        for (int first = 0; first < columns->dims; first += PAIR_DIMS) {
            __m512i pairs[16];
            for (int column = 0; column < 16; column++) {
                const float *row = rows[half * 16 + column];
                const __m512 low = row ? _mm512_loadu_ps(row + first) : _mm512_setzero_ps();
                const __m512 high = row ? _mm512_loadu_ps(row + first + 16) : _mm512_setzero_ps();
                pairs[column] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, scale), _mm512_mul_ps(low, scale));
            }
            transpose(pairs);
            char *tile = columns->query + (first / PAIR_DIMS * 2 + half) * TILE_BYTES;
            for (int pair = 0; pair < 16; pair++)
                _mm512_store_si512(tile + pair * 64, pairs[pair]);
        }
}

/* The rows are apart by those of other heads, which the processor's own foresight does not see through. */
static inline void fetch_rows(const char *rows, size_t stride, int dims) {
    for (int row = 0; row < STEP_KEYS; row++, rows += stride)
        for (int byte = 0; byte < dims * 2; byte += 64)
            _mm_prefetch(rows + byte, _MM_HINT_T0);
}

/* To [dims, BLOCK_KEYS]. */
static void pack_values(const char *rows, size_t stride, int count, int dims, char *packed) {
    for (int first = 0; first < BLOCK_KEYS; first += STEP_KEYS) {
        if (count == BLOCK_KEYS)
            fetch_rows(rows + (first + AHEAD_KEYS) * stride, stride, dims);
        for (int dim = 0; dim < dims; dim += 16) {
            __m512i pairs[16];
            for (int pair = 0; pair < 16; pair++) {
                const int key = first + 2 * pair;
                const char *row = rows + key * stride + dim * 2;
                __m512i low = _mm512_setzero_si512(), high = low;
                if (key < count)
                    low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)row));
                if (key + 1 < count)
                    high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(row + stride)));
                pairs[pair] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
            }
            transpose(pairs);
            for (int row = 0; row < 16; row++)
                _mm512_storeu_si512(packed + ((dim + row) * BLOCK_KEYS + first) * 2, pairs[row]);
        }
    }
}

static void score(Columns *columns, const Block *block) {
    for (int key = 0; key < block->count; key += 32) {
        const char *upper = block->keys + key * block->key_stride, *lower = upper + 16 * block->key_stride;
        const char *query = columns->query;
        if (block->is_first)
            fetch_rows(upper + AHEAD_KEYS * block->key_stride, block->key_stride, columns->dims);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int dim = 0; dim < columns->dims; dim += PAIR_DIMS, query += 2 * TILE_BYTES) {
            LOAD(4, upper + dim * 2, block->key_stride);
            LOAD(5, lower + dim * 2, block->key_stride);
            LOAD(6, query, 64);
            LOAD(7, query + TILE_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        float *scores = columns->scores + key * COLUMNS;
        _tile_stored(0, scores, COLUMNS * 4);
        _tile_stored(1, scores + 16, COLUMNS * 4);
        _tile_stored(2, scores + 16 * COLUMNS, COLUMNS * 4);
        _tile_stored(3, scores + 16 * COLUMNS + 16, COLUMNS * 4);
    }
}

/* Pairs of keys by columns, [count / 2, COLUMNS]. */
static void odds(Columns *columns, int count) {
    for (int half = 0; half < 2; half++) {
        const __m512 largest = raise_largest(columns, count, half);
        const float *scores = columns->scores + half * 16;
        char *pairs = columns->odds + half * 64;
        __m512 even = _mm512_setzero_ps(), odd = even;
        for (int key = 0; key < count; key += 2) {
            const __m512 low = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + key * COLUMNS), largest), 4);
            const __m512 high = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + (key + 1) * COLUMNS), largest), 4);
            even = _mm512_add_ps(even, low);
            odd = _mm512_add_ps(odd, high);
            _mm512_store_si512(pairs + key / 2 * COLUMNS * 4, round_pair(low, high));
        }
        float *total = columns->total + half * 16;
        _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), _mm512_add_ps(even, odd)));
    }
}

static void weigh(Columns *columns, const Block *block) {
    for (int dim = 0; dim < columns->dims; dim += 32) {
        float *weighted = columns->weighted + dim * COLUMNS;
        const char *upper = block->values + dim * block->value_stride, *lower = upper + 16 * block->value_stride;
        LOAD(0, weighted, COLUMNS * 4);
        LOAD(1, weighted + 16, COLUMNS * 4);
        LOAD(2, weighted + 16 * COLUMNS, COLUMNS * 4);
        LOAD(3, weighted + 16 * COLUMNS + 16, COLUMNS * 4);
        for (int key = 0; key < block->count; key += STEP_KEYS) {
            const char *pairs = columns->odds + key / 2 * COLUMNS * 4;
            LOAD(4, upper + key * 2, block->value_stride);
            LOAD(5, lower + key * 2, block->value_stride);
            LOAD(6, pairs, COLUMNS * 4);
            LOAD(7, pairs + 64, COLUMNS * 4);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, weighted, COLUMNS * 4);
        _tile_stored(1, weighted + 16, COLUMNS * 4);
        _tile_stored(2, weighted + 16 * COLUMNS, COLUMNS * 4);
        _tile_stored(3, weighted + 16 * COLUMNS + 16, COLUMNS * 4);
    }
}

/* HELD rows of pairs, `stride` bytes apart, and what they are multiplied with, [pairs, COLUMNS]: from one pair to the next
 * `step` bytes, and `apart` bytes between the halves of the columns. */
typedef struct {
    const char *rows, *others;
    size_t stride, step, apart;
} Dots;

static inline __attribute__((always_inline)) void add_dots(Dots dots, int pairs, Held sums) {
    for (int pair = 0; pair < pairs; pair++, dots.rows += 4, dots.others += dots.step) {
        const __m512bh left = (__m512bh)_mm512_load_si512(dots.others);
        const __m512bh right = (__m512bh)_mm512_load_si512(dots.others + dots.apart);
#pragma GCC unroll 8
        for (int row = 0; row < HELD; row++) {
            int32_t both;
            memcpy(&both, dots.rows + row * dots.stride, sizeof both);
            const __m512bh value = (__m512bh)_mm512_set1_epi32(both);
            sums[row][0] = _mm512_dpbf16_ps(sums[row][0], value, left);
            sums[row][1] = _mm512_dpbf16_ps(sums[row][1], value, right);
        }
    }
}

static void score_by_dots(Columns *columns, const Block *block) {
    for (int key = 0; key < block->count; key += HELD) {
        const char *keys = block->keys + key * block->key_stride, *query = columns->query;
        if (block->is_first && key % STEP_KEYS == 0)
            fetch_rows(keys + AHEAD_KEYS * block->key_stride, block->key_stride, columns->dims);
        Held sums;
        clear(sums);
        for (int dim = 0; dim < columns->dims; dim += PAIR_DIMS, query += 2 * TILE_BYTES)
            add_dots((Dots){keys + dim * 2, query, block->key_stride, 64, TILE_BYTES}, PAIR_DIMS / 2, sums);
        store_held(columns->scores + key * COLUMNS, sums);
    }
}

static void weigh_by_dots(Columns *columns, const Block *block) {
    for (int dim = 0; dim < columns->dims; dim += HELD) {
        float *weighted = columns->weighted + dim * COLUMNS;
        Held sums;
        load_held(weighted, sums);
        const char *values = block->values + dim * block->value_stride;
        add_dots((Dots){values, columns->odds, block->value_stride, COLUMNS * 4, 64}, block->count / 2, sums);
        store_held(weighted, sums);
    }
}

static inline void read_by(void (*score)(Columns *, const Block *), void (*weigh)(Columns *, const Block *), Columns *columns,
                           const Block *block, const int32_t *limits) {
    score(columns, block);
    if (limits)
        mask_scores(columns, block, limits);
    odds(columns, block->count);
    weigh(columns, block);
}

static void read_block(Columns *columns, const Block *block, const int32_t *limits) {
    read_by(score, weigh, columns, block, limits);
}

static void read_block_by_dots(Columns *columns, const Block *block, const int32_t *limits) {
    read_by(score_by_dots, weigh_by_dots, columns, block, limits);
}

static void nothing(void) {}

const Variant BF16 = {2, begin_tiles, end_tiles, pack_query, pack_values, read_block};
const Variant BF16_DOTS = {2, nothing, nothing, pack_query, pack_values, read_block_by_dots};
