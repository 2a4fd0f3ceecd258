/* Causal attention of a call's lines, each after its own past. The parts that know the element type are in variants. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    COLUMNS = 32,      /* (row, head) pairs that are read side by side, one a lane */
    BLOCK_KEYS = 128,  /* keys between two looks at the running maximum; blocks begin at multiples of it */
    STEP_KEYS = 32,    /* a block's end is padded to a multiple of it */
    LINE_FIELDS = 5,   /* first row, rows, where its past begins, past rows, parent (-1: none) */
    MOST_DIMS = 256
};
#define MASKED (-1e30f) /* not infinite: the difference of two is a number */

/* Keys and values are [rows, kv_heads * dims], of the variant's element. */
typedef struct {
    const float *query;
    const void *key, *value, *past_key, *past_value;
    const int32_t *lines;
    int64_t rows, past_rows, line_count;
    int heads, kv_heads, dims;
    float *out;
} Call;

/* Keys in rows of `key_stride` bytes; values as the variant packs them. `count` is a multiple of STEP_KEYS. `is_first`:
 * nobody has read these keys in this call. */
typedef struct {
    const char *keys;
    size_t key_stride;
    const char *values;
    size_t value_stride;
    int first, count, is_first;
} Block;

/* What is known so far of COLUMNS columns: largest score, sum of odds, and odds times values, [dims, COLUMNS]. */
typedef struct {
    _Alignas(64) float largest[COLUMNS];
    _Alignas(64) float total[COLUMNS];
    _Alignas(64) float weighted[MOST_DIMS * COLUMNS];
    _Alignas(64) char query[MOST_DIMS * COLUMNS * sizeof(float)];
    _Alignas(64) float scores[BLOCK_KEYS * COLUMNS];
    _Alignas(64) char odds[BLOCK_KEYS * COLUMNS * sizeof(float)];
    int dims;
} Columns;

typedef struct {
    size_t element_bytes;
    void (*begin)(void);
    void (*end)(void);
    /* rows[i] is a column's query, or NULL */
    void (*pack_query)(Columns *columns, const float *const *rows);
    /* `count` rows, and zeros after them, to the BLOCK_KEYS * dims elements of a block */
    void (*pack_values)(const char *rows, size_t stride, int count, int dims, char *packed);
    /* limits: of each column the last position it may look at; NULL: all of the block */
    void (*read_block)(Columns *columns, const Block *block, const int32_t *limits);
} Variant;

extern const Variant FP32, BF16, BF16_DOTS;

const char *attend(const Variant *variant, const Call *call);
void round_to_bf16(const float *from, uint16_t *to, int64_t count);
#define EXPORTED __attribute__((visibility("default")))
EXPORTED const char *made_from(void);
EXPORTED int has_avx512(void);
EXPORTED int has_vnni(void);
EXPORTED int has_vnni_bf16(void);
EXPORTED int has_amx(void);
