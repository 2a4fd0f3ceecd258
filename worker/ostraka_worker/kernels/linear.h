/* Products of rows and constant weights. What a row's result is depends on the row alone: in 8 bits sums are exact, and each
 * row has its own scale; in float a sum is one chain over the inputs, in their order (on AMX, of pairs of them). So its bits are
 * the same whatever rows stand beside it. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Outputs whose weights lie together, and whose sums are held at once. */
enum { PANEL = 32 };

/* As build/panels.py writes them: panel after panel, each in the order in which it is read. */
typedef struct {
    const void *panels;
    const float *scales;    /* one an output; NULL in float */
    const int32_t *offsets; /* what an output's sums begin with; NULL where that is 0 */
    int inner, outer;
} Weights;

/* Rows as a product reads them. */
typedef struct {
    void *values;
    float *scales; /* one a row; not used in float */
    int64_t rows;
    int inner;
} Laid;

/* Runs part(data, 0), part(data, 1) and so on, in any order, on the threads that a call may use: its `context` knows them. */
typedef struct {
    void (*run)(const void *context, void (*part)(void *data, size_t index), size_t parts, void *data);
    const void *context;
} Threads;

typedef struct {
    const Weights *weights;
    const Laid *rows;
    /* `wide` weights: of each panel, 16 outputs are a gate and 16 what it lets through: out = silu(gate) * through, half as
     * wide */
    int is_gated;
    float *out; /* in strips */
    const Threads *threads;
} Product;

/* What differs from one precision to the other. */
typedef struct {
    int is_scaled, is_shifted; /* whether weights come with scales, with offsets */
    int64_t (*panel_elements)(int64_t inner);
    size_t (*laid_bytes)(int64_t rows, int inner);
    void (*lay_row)(const Laid *laid, int64_t row, const float *values);
    void (*multiply)(const Product *product);
    /* keys and values, to be kept; of so many bytes each */
    size_t kept_bytes;
    void (*keep)(const float *from, void *to, int64_t count);
    void (*begin)(void);
    void (*end)(void);
} Linears;

/* BF16: weights in bfloat16, all else in float; of two kinds of instructions. INT8_VNNI_BF16: keys and values are kept in
 * bfloat16. */
extern const Linears INT8_LINEARS, INT8_VNNI_LINEARS, INT8_VNNI_BF16_LINEARS, FP32_LINEARS, BF16_LINEARS, BF16_AMX_LINEARS;

static inline int least(int64_t one, int64_t other) { return (int)(one < other ? one : other); }

static inline void nothing(void) {}

static inline void keep_floats(const float *from, void *to, int64_t count) { memcpy(to, from, (size_t)count * sizeof *from); }

/* What comes out of a product lies in strips of PANEL outputs, [rows, PANEL] each: so a panel's sums are written end to end.
 * Outputs side by side, 2 to 6 KB from row to row, took 1.1 times as long. */
/* From one strip to the next; an odd multiple of a row, or all strips would share the same lines of the caches. */
static inline int64_t strip_floats(int64_t rows) { return (rows | 1) * PANEL; }

/* Where the outputs from `column` of a row are to be put. */
static inline float *place(const Product *product, int column, int64_t row) {
    const int at = product->is_gated ? column / 2 : column;
    return product->out + at / PANEL * strip_floats(product->rows->rows) + row * PANEL + at % PANEL;
}
