/* All of a layer but its attention: what comes before, and what comes after it. Rows do not meet here. */
#pragma once
#include "linear.h"

/* From normalised rows to turned queries and keys, and values. Widths are heads times dims, multiples of 32. */
typedef struct {
    const Linears *linears;
    const float *normed; /* [rows, inner] */
    const int64_t *positions;
    int64_t rows, contexts;
    Weights weights;         /* of query, key and value */
    const float *bias;       /* one an output */
    const float *head_gains; /* of the heads of query and key, or NULL: they are not normalised */
    const float *cosines, *sines; /* [contexts, dims / 2] */
    int heads, kv_heads, dims;
    float epsilon;
    float *query;
    void *key, *value; /* as they are kept */
} Heads;

/* From the heads' rows to the next layer's: projected, added, normalised, fed forward, added, normalised. */
typedef struct {
    const Linears *linears;
    const float *attended, *before; /* [rows, width of all heads], [rows, hidden] */
    int64_t rows;
    Weights out, wide, down; /* `wide`: gate and what it lets through, 16 outputs each in turn */
    const float *gain, *next_gain;
    float epsilon;
    float *normed, *residual; /* [rows, hidden] */
} FeedForward;

/* Each returns NULL, or what is wrong. */
const char *make_heads(const Heads *heads);
const char *feed_forward(const FeedForward *layer);
