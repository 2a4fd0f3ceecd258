/* One step of a running softmax over a block's scores: the largest is raised, and what was summed is scaled down. */
#pragma once
#include "attention.h"
#include "vectors.h"

static inline void mask_scores(Columns *columns, const Block *block, const int32_t *limits) {
    for (int half = 0; half < COLUMNS / 16; half++) {
        const __m512i limit = _mm512_loadu_si512(limits + half * 16);
        float *scores = columns->scores + half * 16;
        for (int key = 0; key < block->count; key++) {
            const __mmask16 hidden = _mm512_cmplt_epi32_mask(limit, _mm512_set1_epi32(block->first + key));
            if (hidden)
                _mm512_mask_store_ps(scores + key * COLUMNS, hidden, _mm512_set1_ps(MASKED));
        }
    }
}

/* Returns the largest of the 16 columns' scores, of this block and before. */
static inline __m512 raise_largest(Columns *columns, int count, int half) {
    const __m512 before = _mm512_load_ps(columns->largest + half * 16);
    const float *scores = columns->scores + half * 16;
    __m512 a = before, b = before, c = before, d = before;
    for (int key = 0; key < count; key += 4) {
        a = _mm512_max_ps(a, _mm512_load_ps(scores + key * COLUMNS));
        b = _mm512_max_ps(b, _mm512_load_ps(scores + (key + 1) * COLUMNS));
        c = _mm512_max_ps(c, _mm512_load_ps(scores + (key + 2) * COLUMNS));
        d = _mm512_max_ps(d, _mm512_load_ps(scores + (key + 3) * COLUMNS));
    }
    const __m512 largest = _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
    if (_mm512_cmpneq_ps_mask(largest, before)) {
        const __m512 scale = power_of_two(_mm512_sub_ps(before, largest), 6);
        _mm512_store_ps(columns->largest + half * 16, largest);
        float *total = columns->total + half * 16;
        _mm512_store_ps(total, _mm512_mul_ps(_mm512_load_ps(total), scale));
        for (int dim = 0; dim < columns->dims; dim++) {
            float *weighted = columns->weighted + dim * COLUMNS + half * 16;
            _mm512_store_ps(weighted, _mm512_mul_ps(_mm512_load_ps(weighted), scale));
        }
    }
    return largest;
}
