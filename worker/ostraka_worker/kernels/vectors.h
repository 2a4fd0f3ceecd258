/* AVX-512 pieces that all of them use. */
#pragma once
#include <immintrin.h>

/* 2 ** x for x <= 0, to the terms of its series that are wanted: 6 are right to 1e-7, 4 to 4e-5. 2 ** 0 is exactly 1, and
 * what is far below is exactly 0. */
static inline __m512 power_of_two(__m512 x, int terms) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 rest = _mm512_sub_ps(x, whole);
    __m512 sum = _mm512_set1_ps(9.618129108e-3f);
    if (terms == 6) {
        sum = _mm512_fmadd_ps(_mm512_set1_ps(1.540353039e-4f), rest, _mm512_set1_ps(1.333355815e-3f));
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(9.618129108e-3f));
    }
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(5.550410866e-2f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(2.402265070e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(6.931471806e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, whole);
}

/* x / (1 + 2 ** (-x log2(e))); the quotient is an estimate that one step of Newton's makes right to 1e-7. */
static inline __m512 silu(__m512 x) {
    const __m512 power = _mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)), _mm512_set1_ps(120));
    const __m512 one = _mm512_set1_ps(1), sum = _mm512_add_ps(one, power_of_two(power, 6));
    const __m512 estimate = _mm512_rcp14_ps(sum), error = _mm512_fnmadd_ps(sum, estimate, one);
    return _mm512_mul_ps(x, _mm512_fmadd_ps(estimate, error, estimate));
}

/* rows[i] lane j becomes rows[j] lane i */
static inline void transpose(__m512i rows[16]) {
    __m512i a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        rows[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        rows[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
        rows[i + 4] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0x88);
        rows[i + 12] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0xdd);
    }
}
