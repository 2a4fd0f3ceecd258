/* Sums of a few keys, or dims, for all columns, which stay in registers: 16 of them, two halves of the columns each. */
#pragma once
#include "attention.h"
#include "vectors.h"

enum { HELD = 8 };

typedef __m512 Held[HELD][2];

static inline void clear(Held sums) {
    for (int row = 0; row < HELD; row++)
        sums[row][0] = sums[row][1] = _mm512_setzero_ps();
}

static inline void load_held(const float *from, Held sums) {
    for (int row = 0; row < HELD; row++) {
        sums[row][0] = _mm512_load_ps(from + row * COLUMNS);
        sums[row][1] = _mm512_load_ps(from + row * COLUMNS + 16);
    }
}

static inline void store_held(float *to, Held sums) {
    for (int row = 0; row < HELD; row++) {
        _mm512_store_ps(to + row * COLUMNS, sums[row][0]);
        _mm512_store_ps(to + row * COLUMNS + 16, sums[row][1]);
    }
}
