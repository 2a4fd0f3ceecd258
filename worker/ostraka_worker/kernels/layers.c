#include "layers.h"
#include "room.h"
#include "vectors.h"

/* More rows at a time, and what lies between two products leaves the second cache; fewer, and weights pass more often. */
enum { MOST_ROWS = 256 };

static int most(int one, int other) { return one > other ? one : other; }

/* Of one row: what makes its mean square one. */
static inline float inverse_rms(const float *row, int dims, float epsilon) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int dim = 0; dim < dims; dim += 32) {
        const __m512 low = _mm512_loadu_ps(row + dim), high = _mm512_loadu_ps(row + dim + 16);
        even = _mm512_fmadd_ps(low, low, even);
        odd = _mm512_fmadd_ps(high, high, odd);
    }
    return 1 / __builtin_sqrtf(_mm512_reduce_add_ps(_mm512_add_ps(even, odd)) / (float)dims + epsilon);
}

static inline void normalise(const float *row, const float *gain, int dims, float epsilon, float *to) {
    const __m512 factor = _mm512_set1_ps(inverse_rms(row, dims, epsilon));
    for (int dim = 0; dim < dims; dim += 16) {
        const __m512 value = _mm512_mul_ps(_mm512_loadu_ps(row + dim), factor);
        _mm512_storeu_ps(to + dim, _mm512_mul_ps(value, _mm512_loadu_ps(gain + dim)));
    }
}

static inline void add(const float *added, int dims, float *row) {
    for (int dim = 0; dim < dims; dim += 16)
        _mm512_storeu_ps(row + dim, _mm512_add_ps(_mm512_loadu_ps(row + dim), _mm512_loadu_ps(added + dim)));
}

/* A head's halves are the two parts of complex numbers, turned by the position's angles; in place. */
static inline void turn(float *head, const float *cosines, const float *sines, int half) {
    for (int dim = 0; dim < half; dim += 16) {
        const __m512 cosine = _mm512_loadu_ps(cosines + dim), sine = _mm512_loadu_ps(sines + dim);
        const __m512 real = _mm512_loadu_ps(head + dim), other = _mm512_loadu_ps(head + half + dim);
        _mm512_storeu_ps(head + dim, _mm512_fmsub_ps(real, cosine, _mm512_mul_ps(other, sine)));
        _mm512_storeu_ps(head + half + dim, _mm512_fmadd_ps(other, cosine, _mm512_mul_ps(real, sine)));
    }
}

static void part_row(const Heads *heads, int64_t row, float *mixed) {
    const int dims = heads->dims, query = heads->heads * dims, key = heads->kv_heads * dims;
    add(heads->bias, query + 2 * key, mixed);
    const float *cosines = heads->cosines + heads->positions[row] * (dims / 2);
    const float *sines = heads->sines + heads->positions[row] * (dims / 2);
    for (int first = 0; first < query + key; first += dims) {
        if (heads->head_gains)
            normalise(mixed + first, heads->head_gains + first, dims, heads->epsilon, mixed + first);
        turn(mixed + first, cosines, sines, dims / 2);
    }
    for (int dim = 0; dim < query; dim += 16)
        _mm512_storeu_ps(heads->query + row * query + dim, _mm512_loadu_ps(mixed + dim));
    const Linears *linears = heads->linears;
    const size_t kept = (size_t)(row * key) * linears->kept_bytes;
    linears->keep(mixed + query, (char *)heads->key + kept, key);
    linears->keep(mixed + query + key, (char *)heads->value + kept, key);
}

/* Lays out the memory of `rows` rows at `at`; returns where it ends. */
static char *lay_out(const Linears *linears, Laid *laid, int64_t rows, int inner, char *at) {
    const size_t bytes = aligned(linears->laid_bytes(rows, inner));
    *laid = (Laid){at, (float *)(at + bytes), rows, inner};
    return at + bytes + aligned(rows * sizeof(float));
}

/* Puts the parts of a product's row side by side. */
static void take_row(const float *strips, int64_t rows, int64_t row, int width, float *to) {
    const float *from = strips + row * PANEL;
    for (int first = 0; first < width; first += PANEL, from += strip_floats(rows)) {
        _mm512_storeu_ps(to + first, _mm512_loadu_ps(from));
        _mm512_storeu_ps(to + first + 16, _mm512_loadu_ps(from + 16));
    }
}

const char *make_heads(const Heads *heads) {
    const int64_t most_rows = least(heads->rows, MOST_ROWS);
    const int inner = heads->weights.inner, outer = heads->weights.outer;
    for (int64_t row = 0; row < heads->rows; row++)
        if (heads->positions[row] < 0 || heads->positions[row] >= heads->contexts)
            return "a position is outside of the context";
    const Linears *linears = heads->linears;
    Laid laid;
    const size_t bytes = (size_t)lay_out(linears, &laid, most_rows, inner, NULL);
    const int64_t mixed_floats = strip_floats(most_rows) * (outer / PANEL);
    char *room = make_room(bytes + (mixed_floats + outer) * sizeof(float));
    if (!room)
        return "out of memory";
    float *mixed = (float *)lay_out(linears, &laid, most_rows, inner, room), *row_floats = mixed + mixed_floats;
    linears->begin();
    for (int64_t first = 0; first < heads->rows; first += MOST_ROWS) {
        laid.rows = least(heads->rows - first, MOST_ROWS);
        for (int64_t row = 0; row < laid.rows; row++)
            linears->lay_row(&laid, row, heads->normed + (first + row) * inner);
        linears->multiply(&(Product){&heads->weights, &laid, 0, mixed, &heads->threads});
        for (int64_t row = 0; row < laid.rows; row++) {
            take_row(mixed, laid.rows, row, outer, row_floats);
            part_row(heads, first + row, row_floats);
        }
    }
    linears->end();
    return NULL;
}

typedef struct {
    Laid attended, normed, inner;
    float *strips, *row;
} Between;

static size_t lay_between(Between *between, const FeedForward *layer, char *at) {
    const int64_t rows = least(layer->rows, MOST_ROWS);
    const int hidden = layer->out.outer, wide = layer->down.inner, widest = most(hidden, wide);
    char *end = lay_out(layer->linears, &between->attended, rows, most(layer->out.inner, hidden), at);
    between->attended.inner = layer->out.inner;
    between->normed = between->attended; /* never both at once */
    between->normed.inner = hidden;
    end = lay_out(layer->linears, &between->inner, rows, wide, end);
    between->strips = (float *)end;
    between->row = between->strips + strip_floats(rows) * (widest / PANEL);
    return (size_t)(between->row + widest);
}

static void feed_rows(const FeedForward *layer, Between *between, int64_t first, int64_t rows) {
    const Linears *linears = layer->linears;
    const int hidden = layer->out.outer, wide = layer->down.inner, width = layer->out.inner;
    float *residual = layer->residual + first * hidden, *normed = layer->normed + first * hidden;
    float *strips = between->strips, *one = between->row;
    between->attended.rows = between->normed.rows = between->inner.rows = rows;
    for (int64_t row = 0; row < rows; row++)
        linears->lay_row(&between->attended, row, layer->attended + (first + row) * width);
    linears->multiply(&(Product){&layer->out, &between->attended, 0, strips, &layer->threads});
    for (int64_t row = 0; row < rows; row++) {
        float *sum = residual + row * hidden;
        take_row(strips, rows, row, hidden, sum);
        add(layer->before + (first + row) * hidden, hidden, sum);
        normalise(sum, layer->gain, hidden, layer->epsilon, one);
        linears->lay_row(&between->normed, row, one);
    }
    linears->multiply(&(Product){&layer->wide, &between->normed, 1, strips, &layer->threads});
    for (int64_t row = 0; row < rows; row++) {
        take_row(strips, rows, row, wide, one);
        linears->lay_row(&between->inner, row, one);
    }
    linears->multiply(&(Product){&layer->down, &between->inner, 0, strips, &layer->threads});
    for (int64_t row = 0; row < rows; row++) {
        float *sum = residual + row * hidden;
        take_row(strips, rows, row, hidden, one);
        add(one, hidden, sum);
        normalise(sum, layer->next_gain, hidden, layer->epsilon, normed + row * hidden);
    }
}

const char *feed_forward(const FeedForward *layer) {
    Between between;
    char *room = make_room(lay_between(&between, layer, NULL));
    if (!room)
        return "out of memory";
    lay_between(&between, layer, room);
    layer->linears->begin();
    for (int64_t first = 0; first < layer->rows; first += MOST_ROWS)
        feed_rows(layer, &between, first, least(layer->rows - first, MOST_ROWS));
    layer->linears->end();
    return NULL;
}
