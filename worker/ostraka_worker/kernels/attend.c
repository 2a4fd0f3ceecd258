/* Which keys each column looks at, and where they lie.
 *
 * A column is one head of one row. COLUMNS of them at a time walk over blocks of keys in the order of their positions:
 * first the whole blocks of a past that all of them share, which lie in the caller's arrays; then, line by line, the
 * end of the past and the line's own keys, gathered end to end. So a column meets the same keys in the same blocks
 * however its prompt was cut into a past and lines, and its answer is the same to the last bit.
 */
#include "attention.h"
#include "room.h"
#include "vectors.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FETCHED = 1 << 19 };

typedef struct {
    int32_t row, rows, past_first, past_rows, parent;
    int32_t position;     /* of its first token */
    int32_t whole;        /* past rows that are read as they lie: whole blocks */
    int32_t root;         /* the past's number, or -1 */
    int32_t own, own_pad; /* keys gathered, and with the padding */
    size_t first;         /* where its own keys begin among all lines' */
} Line;

typedef struct {
    int32_t first, blocks;
    char *packed;
} Root;

typedef struct {
    const Variant *variant;
    const Call *call;
    Line *lines;
    Root *roots;
    int32_t root_count;
    char *keys, *values, *packed; /* of all lines, for one head */
    Columns *columns;
    int head;
} Work;

static int32_t min(int32_t one, int32_t other) { return one < other ? one : other; }

static size_t row_bytes(const Work *work) { return work->call->dims * work->variant->element_bytes; }

static size_t stride(const Work *work) { return work->call->kv_heads * row_bytes(work); }

static int32_t find_root(Work *work, const Line *line) {
    if (!line->past_rows)
        return -1;
    int32_t root = 0;
    while (root < work->root_count && work->roots[root].first != line->past_first)
        root++;
    if (root == work->root_count)
        work->roots[work->root_count++] = (Root){line->past_first, 0, NULL};
    if (work->roots[root].blocks < line->whole / BLOCK_KEYS)
        work->roots[root].blocks = line->whole / BLOCK_KEYS;
    return root;
}

/* Returns 0 where the lines are not what they must be: rows end to end, pasts inside the past, parents before them. */
static int describe(Work *work) {
    const Call *call = work->call;
    int64_t row = 0;
    size_t keys = 0;
    for (int64_t index = 0; index < call->line_count; index++) {
        const int32_t *fields = call->lines + index * LINE_FIELDS;
        Line *line = work->lines + index;
        *line = (Line){fields[0], fields[1], fields[2], fields[3], fields[4], 0, 0, -1, 0, 0, keys};
        if (line->row != row || line->rows < 1 || line->past_first < 0 || line->past_rows < 0 || line->parent >= index ||
            (int64_t)line->past_first + line->past_rows > call->past_rows)
            return 0;
        row += line->rows;
        const Line *parent = line->parent < 0 ? NULL : work->lines + line->parent;
        line->whole = parent ? parent->whole : line->past_rows / BLOCK_KEYS * BLOCK_KEYS;
        line->position = parent ? parent->position + parent->rows : line->past_rows;
        line->root = parent ? parent->root : find_root(work, line);
        line->own = line->position + line->rows - line->whole;
        line->own_pad = (line->own + STEP_KEYS - 1) / STEP_KEYS * STEP_KEYS;
        keys += (line->own + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
    }
    return row == call->rows;
}

static void copy_rows(const Work *work, const void *from, int64_t first, int32_t count, char *to) {
    const size_t bytes = row_bytes(work), step = stride(work);
    const char *row = (const char *)from + first * step + work->head * bytes;
    for (int32_t index = 0; index < count; index++, row += step, to += bytes)
        memcpy(to, row, bytes);
}

/* A line's own keys: what its parent has, or the end of its past; then its rows. */
static void gather(const Work *work, const Line *line) {
    const Call *call = work->call;
    const size_t bytes = row_bytes(work);
    const int32_t before = line->own - line->rows;
    char *keys = work->keys + line->first * bytes, *values = work->values + line->first * bytes;
    if (line->parent >= 0) {
        const Line *parent = work->lines + line->parent;
        memcpy(keys, work->keys + parent->first * bytes, before * bytes);
        memcpy(values, work->values + parent->first * bytes, before * bytes);
    } else {
        copy_rows(work, call->past_key, line->past_first + line->whole, before, keys);
        copy_rows(work, call->past_value, line->past_first + line->whole, before, values);
    }
    copy_rows(work, call->key, line->row, line->rows, keys + before * bytes);
    copy_rows(work, call->value, line->row, line->rows, values + before * bytes);
    memset(keys + line->own * bytes, 0, (line->own_pad - line->own) * bytes);
    memset(values + line->own * bytes, 0, (line->own_pad - line->own) * bytes);
    for (int32_t key = 0; key < line->own; key += BLOCK_KEYS)
        work->variant->pack_values(values + key * bytes, bytes, min(line->own - key, BLOCK_KEYS), call->dims,
                                   work->packed + (line->first + key) * bytes);
}

static void pack_roots(const Work *work) {
    const size_t bytes = row_bytes(work), step = stride(work);
    for (int32_t root = 0; root < work->root_count; root++)
        for (int32_t block = 0; block < work->roots[root].blocks; block++) {
            const int64_t row = work->roots[root].first + (int64_t)block * BLOCK_KEYS;
            const char *rows = (const char *)work->call->past_value + row * step + work->head * bytes;
            work->variant->pack_values(rows, step, BLOCK_KEYS, work->call->dims,
                                       work->roots[root].packed + (size_t)block * BLOCK_KEYS * bytes);
        }
}

/* The block of a line's keys that begins at `position`. */
static Block find_block(const Work *work, const Line *line, int32_t position) {
    const size_t bytes = row_bytes(work), step = stride(work), value_stride = BLOCK_KEYS * work->variant->element_bytes;
    if (position < line->whole) {
        const Root *root = work->roots + line->root;
        const size_t offset = (root->first + (size_t)position) * step + work->head * bytes;
        const char *keys = (const char *)work->call->past_key + offset;
        return (Block){keys, step, root->packed + position * bytes, value_stride, position, BLOCK_KEYS, 0};
    }
    const int32_t key = position - line->whole;
    const char *values = work->packed + (line->first + key) * bytes, *keys = work->keys + (line->first + key) * bytes;
    return (Block){keys, bytes, values, value_stride, position, min(line->own_pad - key, BLOCK_KEYS), 0};
}

/* Of a line: all blocks from `position` to the last one its rows among the columns may look at. */
static void read_line(const Work *work, const Line *line, int64_t first, int32_t position) {
    const int group = work->call->heads / work->call->kv_heads;
    int32_t limits[COLUMNS], last = -1, least = INT32_MAX;
    for (int column = 0; column < COLUMNS; column++) {
        const int64_t row = (first + column) / group - line->row;
        limits[column] = row >= 0 && row < line->rows ? line->position + (int32_t)row : -1;
        last = limits[column] > last ? limits[column] : last;
        least = min(limits[column], least);
    }
    for (; position <= last; position += BLOCK_KEYS) {
        Block block = find_block(work, line, position);
        block.count = min(block.count, (last - position + STEP_KEYS) / STEP_KEYS * STEP_KEYS);
        work->variant->read_block(work->columns, &block, position + block.count - 1 > least ? limits : NULL);
    }
}

static void begin_columns(const Work *work, int64_t first) {
    const Call *call = work->call;
    const int group = call->heads / call->kv_heads;
    const float *rows[COLUMNS];
    for (int column = 0; column < COLUMNS; column++) {
        const int64_t row = (first + column) / group, head = work->head * group + (first + column) % group;
        rows[column] = row < call->rows ? call->query + (row * call->heads + head) * call->dims : NULL;
        work->columns->largest[column] = MASKED;
        work->columns->total[column] = 0;
    }
    memset(work->columns->weighted, 0, sizeof(float) * COLUMNS * call->dims);
    work->variant->pack_query(work->columns, rows);
}

static void end_columns(const Work *work, int64_t first) {
    const Call *call = work->call;
    const int group = call->heads / call->kv_heads;
    for (int half = 0; half < COLUMNS / 16; half++) {
        const __m512 total = _mm512_load_ps(work->columns->total + half * 16);
        for (int dim = 0; dim < call->dims; dim += 16) {
            __m512i values[16];
            for (int row = 0; row < 16; row++) {
                const float *weighted = work->columns->weighted + (dim + row) * COLUMNS + half * 16;
                values[row] = (__m512i)_mm512_div_ps(_mm512_load_ps(weighted), total);
            }
            transpose(values);
            for (int column = 0; column < 16; column++) {
                const int64_t place = first + half * 16 + column;
                const int64_t row = place / group, head = work->head * group + place % group;
                if (row < call->rows)
                    _mm512_storeu_si512(call->out + (row * call->heads + head) * call->dims + dim, values[column]);
            }
        }
    }
}

/* Columns first .. first + COLUMNS of one head of keys; `line` is the line of the first. */
static void read_columns(const Work *work, int64_t first, const Line *line) {
    const Call *call = work->call;
    const int group = call->heads / call->kv_heads;
    const Line *end = work->lines + call->line_count, *after = line;
    int32_t shared = line->whole;
    while (after < end && after->row < (first + COLUMNS + group - 1) / group) {
        shared = after->root == line->root ? min(shared, after->whole) : 0;
        after++;
    }
    begin_columns(work, first);
    for (int32_t position = 0; position < shared; position += BLOCK_KEYS) {
        Block block = find_block(work, line, position);
        block.is_first = !first;
        work->variant->read_block(work->columns, &block, NULL);
    }
    for (; line < after; line++)
        read_line(work, line, first, shared);
    end_columns(work, first);
}

/* Lays the call's memory out; returns how much there must be. */
static size_t lay_out(Work *work, char *at) {
    const Call *call = work->call;
    const size_t bytes = row_bytes(work);
    size_t used = 0, keys = 0, whole = 0;
    if (call->line_count) {
        const Line *last = work->lines + call->line_count - 1;
        keys = last->first + (last->own + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
    }
    work->columns = (Columns *)at;
    used += aligned(sizeof(Columns));
    work->keys = at + used;
    used += aligned(keys * bytes);
    work->values = at + used;
    used += aligned(keys * bytes);
    work->packed = at + used;
    used += aligned(keys * bytes);
    for (int32_t root = 0; root < work->root_count; root++) {
        work->roots[root].packed = at + used + whole;
        whole += (size_t)work->roots[root].blocks * BLOCK_KEYS * bytes;
    }
    return used + whole;
}

/* All of a past that fits the second cache, before it is read: one head's rows lie apart, and each would be waited for. Of
 * 500 rows the call took 0.88 of the time it took without, of 1,000 0.98; of 2,000, which do not fit, 1.08. */
static void fetch_past(const Work *work) {
    const size_t bytes = work->call->past_rows * stride(work);
    if (bytes > MOST_FETCHED)
        return;
    for (size_t byte = 0; byte < bytes; byte += 64)
        _mm_prefetch((const char *)work->call->past_value + byte, _MM_HINT_T1);
    for (size_t byte = 0; byte < bytes; byte += 64)
        _mm_prefetch((const char *)work->call->past_key + byte, _MM_HINT_T1);
}

static void read_heads(Work *work) {
    const Call *call = work->call;
    const int group = call->heads / call->kv_heads;
    work->columns->dims = call->dims;
    fetch_past(work);
    work->variant->begin();
    for (work->head = 0; work->head < call->kv_heads; work->head++) {
        pack_roots(work);
        for (int64_t index = 0; index < call->line_count; index++)
            gather(work, work->lines + index);
        const Line *line = work->lines;
        for (int64_t first = 0; first < call->rows * group; first += COLUMNS) {
            while (line->row + line->rows <= first / group)
                line++;
            read_columns(work, first, line);
        }
    }
    work->variant->end();
}

/* Returns NULL, or what is wrong. */
const char *attend(const Variant *variant, const Call *call) {
    Work work = {.variant = variant, .call = call};
    const char *wrong = NULL;
    char *room = NULL;
    work.lines = calloc(call->line_count + 1, sizeof(Line));
    work.roots = calloc(call->line_count + 1, sizeof(Root));
    if (!work.lines || !work.roots)
        wrong = "out of memory";
    else if (!describe(&work))
        wrong = "the lines do not cover the rows, or reach outside the past";
    else if (!(room = make_room(lay_out(&work, NULL))))
        wrong = "out of memory";
    if (!wrong) {
        lay_out(&work, room);
        read_heads(&work);
    }
    free(work.lines);
    free(work.roots);
    return wrong;
}
