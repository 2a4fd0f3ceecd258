/* What the products in 8 bits share, whatever instructions make them: how a row is rounded, and what its sums become. */
#pragma once
#include "attention.h"
#include "linear.h"
#include "tiles.h"
#include "vectors.h"

/* Inputs that lie together; past the last, weights are 0. */
enum { STEP_BYTES = 64 };

static inline int steps_of(int inner) { return (inner + STEP_BYTES - 1) / STEP_BYTES; }

static inline int64_t panel_elements(int64_t inner) { return (int64_t)steps_of((int)inner) * 2 * TILE_BYTES; }

static inline void keep_halves(const float *from, void *to, int64_t count) { round_to_bf16(from, to, count); }

/* The bits of floats without their sign are in the order of the floats, and after all of them come those that are none. */
static inline __m512i magnitude(const float *values) { return (__m512i)_mm512_abs_ps(_mm512_loadu_ps(values)); }

/* To -127 .. 127, STEP_BYTES of them every `stride` bytes, and of each the bits that are in `flipped` turned over. Returns the
 * row's scale: that of zeros is 0, and with a value that is no number it is none. */
static inline float round_row(const float *values, int inner, char *to, size_t stride, __m128i flipped) {
    __m512i most = _mm512_setzero_si512(), other = most;
    for (int index = 0; index < inner; index += 32) {
        most = _mm512_max_epi32(most, magnitude(values + index));
        other = _mm512_max_epi32(other, magnitude(values + index + 16));
    }
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_max_epi32(most, other));
    const float largest = _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(bits)));
    const __m512 factor = _mm512_set1_ps(largest > 1e-30f ? 127 / largest : 0);
    for (int first = 0; first < inner; first += STEP_BYTES, to += stride)
        for (int part = 0; part < STEP_BYTES; part += 16) {
            __m512 rest = _mm512_setzero_ps();
            if (first + part < inner)
                rest = _mm512_loadu_ps(values + first + part);
            const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(rest, factor));
            _mm_store_si128((__m128i *)(to + part), _mm_xor_si128(_mm512_cvtsepi32_epi8(whole), flipped));
        }
    return largest / 127;
}

static inline __m512 scaled(const int32_t *sums, __m512 row_scale, __m512 output_scales) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), _mm512_mul_ps(row_scale, output_scales));
}

/* Puts the sums, [count, PANEL], of `count` rows from `row` and PANEL outputs from `column` where they belong. */
static inline void finish(const Product *product, int column, int64_t row, int count, const int32_t *sums) {
    const __m512 left = _mm512_loadu_ps(product->weights->scales + column);
    const __m512 right = _mm512_loadu_ps(product->weights->scales + column + 16);
    const int is_gated = product->is_gated;
    float *to = place(product, column, row);
    for (int index = 0; index < count; index++, sums += PANEL, to += PANEL) {
        const __m512 scale = _mm512_set1_ps(product->rows->scales[row + index]);
        const __m512 lower = scaled(sums, scale, left), upper = scaled(sums + 16, scale, right);
        _mm512_store_ps(to, is_gated ? _mm512_mul_ps(silu(lower), upper) : lower);
        if (!is_gated)
            _mm512_store_ps(to + 16, upper);
    }
}
