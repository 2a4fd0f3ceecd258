/* The kernels as ONNX Runtime operators of the domain "ostraka": LineAttention, LineAttentionBf16 and ToBf16; and
 * Int8Heads and Int8FeedForward, between two attentions. */
#include "attention.h"
#include "layers.h"
#include "ort.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 10 };

typedef struct Kernel Kernel;

/* Of inputs and outputs one letter each: f float, h bfloat16, b 8 bits, i and l integers of 32 and 64. */
typedef struct {
    OrtOp op;
    const char *name, *inputs, *outputs;
    const Variant *variant; /* of an attention */
    OrtStatus *(*run)(const Kernel *, OrtKernelContext *);
} Operator;

struct Kernel {
    OrtTable table;
    const Operator *operator;
    int64_t heads, kv_heads;
    float epsilon;
};

typedef struct {
    void *data;
    int64_t shape[2];
} Matrix;

#define CALL(table, place, type) ((type)(table)[place])
#define TRY(call)                   \
    do {                            \
        OrtStatus *status = (call); \
        if (status)                 \
            return status;          \
    } while (0)

static OrtStatus *refuse(OrtTable table, const char *why) {
    return CALL(table, CREATE_STATUS, OrtStatus * (*)(int, const char *))(ORT_INVALID_ARGUMENT, why);
}

static OrtStatus *get_data(OrtTable table, const OrtValue *value, void *data) {
    return CALL(table, GET_DATA, OrtStatus * (*)(const OrtValue *, void **))(value, data);
}

static OrtStatus *input(OrtTable table, OrtKernelContext *context, size_t index, Matrix *matrix) {
    const OrtValue *value = NULL;
    OrtShape *shape = NULL;
    size_t axes = 0;
    TRY(CALL(table, GET_INPUT, OrtStatus * (*)(OrtKernelContext *, size_t, const OrtValue **))(context, index, &value));
    TRY(CALL(table, GET_SHAPE, OrtStatus * (*)(const OrtValue *, OrtShape **))(value, &shape));
    OrtStatus *status = CALL(table, GET_DIMENSIONS_COUNT, OrtStatus * (*)(const OrtShape *, size_t *))(shape, &axes);
    matrix->shape[0] = 1; /* a single axis is a row */
    if (!status && (axes == 1 || axes == 2)) {
        typedef OrtStatus *(*Get)(const OrtShape *, int64_t *, size_t);
        status = CALL(table, GET_DIMENSIONS, Get)(shape, matrix->shape + 2 - axes, axes);
    }
    CALL(table, RELEASE_SHAPE, void (*)(OrtShape *))(shape);
    TRY(status);
    return axes == 1 || axes == 2 ? get_data(table, value, &matrix->data) : refuse(table, "an input has one axis or two");
}

static OrtStatus *all_inputs(const Kernel *kernel, OrtKernelContext *context, Matrix *in) {
    for (size_t index = 0; kernel->operator->inputs[index]; index++)
        TRY(input(kernel->table, context, index, in + index));
    return NULL;
}

static OrtStatus *output(OrtTable table, OrtKernelContext *context, size_t index, int64_t rows, int64_t width, void *data) {
    typedef OrtStatus *(*Get)(OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **);
    const int64_t shape[2] = {rows, width};
    OrtValue *value = NULL;
    TRY(CALL(table, GET_OUTPUT, Get)(context, index, shape, 2, &value));
    return get_data(table, value, data);
}

static OrtStatus *refused(OrtTable table, const char *wrong) { return wrong ? refuse(table, wrong) : NULL; }

static OrtStatus *round_rows(const Kernel *kernel, OrtKernelContext *context) {
    Matrix rows;
    void *rounded;
    TRY(input(kernel->table, context, 0, &rows));
    TRY(output(kernel->table, context, 0, rows.shape[0], rows.shape[1], &rounded));
    round_to_bf16(rows.data, rounded, rows.shape[0] * rows.shape[1]);
    return NULL;
}

static OrtStatus *read_lines(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[MOST_INPUTS]; /* query, key, value, past key, past value, lines */
    TRY(all_inputs(kernel, context, in));
    const int64_t width = in[1].shape[1], dims = width / kernel->kv_heads;
    const int fits = in[0].shape[0] == in[1].shape[0] && in[0].shape[0] == in[2].shape[0] &&
                     in[0].shape[1] == dims * kernel->heads && in[2].shape[1] == width && in[3].shape[1] == width &&
                     in[4].shape[1] == width && in[3].shape[0] == in[4].shape[0] && in[5].shape[1] == LINE_FIELDS;
    if (!fits || dims > MOST_DIMS || dims % 32)
        return refuse(kernel->table, "the inputs' shapes do not fit each other");
    Call call = {
        .query = in[0].data, .key = in[1].data, .value = in[2].data, .past_key = in[3].data, .past_value = in[4].data,
        .lines = in[5].data, .rows = in[0].shape[0], .past_rows = in[3].shape[0], .line_count = in[5].shape[0],
        .heads = (int)kernel->heads, .kv_heads = (int)kernel->kv_heads, .dims = (int)dims,
    };
    TRY(output(kernel->table, context, 0, in[0].shape[0], in[0].shape[1], &call.out));
    return refused(kernel->table, attend(kernel->operator->variant, &call));
}

/* Whether tiles and scales are those of `inner` inputs, and of outputs in whole panels. */
static int are_weights(const Matrix *tiles, const Matrix *scales, int64_t inner, Weights *weights) {
    const int64_t outer = scales->shape[1], panel = (inner + STEP_BYTES - 1) / STEP_BYTES * 2 * TILE_BYTES;
    *weights = (Weights){tiles->data, scales->data, (int)inner, (int)outer};
    return inner % 32 == 0 && outer % PANEL == 0 && tiles->shape[0] == outer / PANEL && tiles->shape[1] == panel;
}

static OrtStatus *run_heads(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[MOST_INPUTS]; /* normed, positions, tiles, scales, bias, gains of heads, cosines, sines */
    TRY(all_inputs(kernel, context, in));
    const int64_t rows = in[0].shape[0], parts = kernel->heads + 2 * kernel->kv_heads, dims = in[3].shape[1] / parts;
    Heads heads = {
        .normed = in[0].data, .positions = in[1].data, .rows = rows, .contexts = in[6].shape[0], .bias = in[4].data,
        .head_gains = in[5].shape[0] ? in[5].data : NULL, .cosines = in[6].data, .sines = in[7].data,
        .heads = (int)kernel->heads, .kv_heads = (int)kernel->kv_heads, .dims = (int)dims, .epsilon = kernel->epsilon,
    };
    const int fits = are_weights(in + 2, in + 3, in[0].shape[1], &heads.weights) && in[1].shape[0] == rows &&
                     in[3].shape[1] == dims * parts && in[4].shape[1] == dims * parts && dims % 32 == 0 &&
                     (!heads.head_gains || in[5].shape[0] == kernel->heads + kernel->kv_heads) &&
                     in[5].shape[1] == dims && in[6].shape[1] == dims / 2 && in[7].shape[1] == dims / 2 &&
                     in[7].shape[0] == in[6].shape[0];
    if (!fits)
        return refuse(kernel->table, "the inputs' shapes do not fit each other");
    TRY(output(kernel->table, context, 0, rows, kernel->heads * dims, &heads.query));
    TRY(output(kernel->table, context, 1, rows, kernel->kv_heads * dims, &heads.key));
    TRY(output(kernel->table, context, 2, rows, kernel->kv_heads * dims, &heads.value));
    return refused(kernel->table, make_heads(&heads));
}

static OrtStatus *run_feed_forward(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[MOST_INPUTS]; /* attended, before; of out: tiles, scales; gain; of wide, of down; the next gain */
    TRY(all_inputs(kernel, context, in));
    const int64_t rows = in[0].shape[0], hidden = in[1].shape[1];
    FeedForward layer = {
        .attended = in[0].data, .before = in[1].data, .rows = rows, .gain = in[4].data, .next_gain = in[9].data,
        .epsilon = kernel->epsilon,
    };
    const int fits = are_weights(in + 2, in + 3, in[0].shape[1], &layer.out) && in[3].shape[1] == hidden &&
                     are_weights(in + 5, in + 6, hidden, &layer.wide) &&
                     are_weights(in + 7, in + 8, in[6].shape[1] / 2, &layer.down) && in[8].shape[1] == hidden &&
                     in[1].shape[0] == rows && in[4].shape[1] == hidden && in[9].shape[1] == hidden;
    if (!fits)
        return refuse(kernel->table, "the inputs' shapes do not fit each other");
    TRY(output(kernel->table, context, 0, rows, hidden, &layer.normed));
    TRY(output(kernel->table, context, 1, rows, hidden, &layer.residual));
    return refused(kernel->table, feed_forward(&layer));
}

static OrtStatus *compute(void *kernel, OrtKernelContext *context) {
    return ((Kernel *)kernel)->operator->run(kernel, context);
}

static OrtStatus *create(const OrtOp *op, OrtTable table, const OrtKernelInfo *info, void **made) {
    typedef OrtStatus *(*Get)(const OrtKernelInfo *, const char *, int64_t *);
    typedef OrtStatus *(*GetFloat)(const OrtKernelInfo *, const char *, float *);
    const Operator *operator= (const Operator *)op;
    Kernel kernel = {table, operator, 1, 1, 0};
    if (operator->variant || operator->run == run_heads) {
        TRY(CALL(table, GET_ATTRIBUTE_INT, Get)(info, "heads", &kernel.heads));
        TRY(CALL(table, GET_ATTRIBUTE_INT, Get)(info, "kv_heads", &kernel.kv_heads));
        if (kernel.kv_heads < 1 || kernel.heads < 1 || kernel.heads % kernel.kv_heads)
            return refuse(table, "heads must be a multiple of kv_heads");
    }
    if (operator->run == run_heads || operator->run == run_feed_forward)
        TRY(CALL(table, GET_ATTRIBUTE_FLOAT, GetFloat)(info, "epsilon", &kernel.epsilon));
    Kernel *copy = malloc(sizeof kernel);
    if (!copy)
        return refuse(table, "out of memory");
    *copy = kernel;
    *made = copy;
    return NULL;
}

static int type_of(char letter) {
    switch (letter) {
    case 'h': return ORT_UINT16;
    case 'b': return ORT_INT8;
    case 'i': return ORT_INT32;
    case 'l': return ORT_INT64;
    default: return ORT_FLOAT;
    }
}

static const char *name(const OrtOp *op) { return ((const Operator *)op)->name; }
static const char *provider(const OrtOp *op) { return NULL; }
static size_t input_count(const OrtOp *op) { return strlen(((const Operator *)op)->inputs); }
static size_t output_count(const OrtOp *op) { return strlen(((const Operator *)op)->outputs); }
static int input_type(const OrtOp *op, size_t index) { return type_of(((const Operator *)op)->inputs[index]); }
static int output_type(const OrtOp *op, size_t index) { return type_of(((const Operator *)op)->outputs[index]); }
static int required(const OrtOp *op, size_t index) { return ORT_REQUIRED; }
static int memory(const OrtOp *op, size_t index) { return ORT_DEFAULT_MEMORY; }

#define OPERATOR(its_name, its_inputs, its_outputs, its_variant, its_run)                                            \
    {.op = {.version = ORT_API, .name = name, .provider = provider, .input_type = input_type,                        \
            .input_count = input_count, .output_type = output_type, .output_count = output_count, .destroy = free,   \
            .input_kind = required, .output_kind = required, .input_memory = memory, .create = create,               \
            .compute = compute},                                                                                     \
     .name = its_name, .inputs = its_inputs, .outputs = its_outputs, .variant = its_variant, .run = its_run}

static const Operator operators[] = {
    OPERATOR("LineAttention", "fffffi", "f", &FP32, read_lines),
    OPERATOR("LineAttentionBf16", "fhhhhi", "f", &BF16, read_lines),
    OPERATOR("ToBf16", "f", "h", NULL, round_rows),
    OPERATOR("Int8Heads", "flbfffff", "fhh", NULL, run_heads),
    OPERATOR("Int8FeedForward", "ffbffbfbff", "ff", NULL, run_feed_forward),
};

/* The name is the runtime's. The domain lives as long as the process. */
EXPORTED OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtBase *base) {
    static OrtDomain *domain;
    const OrtTable table = base->get(ORT_API);
    if (!domain) {
        TRY(CALL(table, CREATE_DOMAIN, OrtStatus * (*)(const char *, OrtDomain **))("ostraka", &domain));
        for (size_t index = 0; index < sizeof operators / sizeof *operators; index++)
            TRY(CALL(table, DOMAIN_ADD, OrtStatus * (*)(OrtDomain *, const OrtOp *))(domain, &operators[index].op));
    }
    return CALL(table, ADD_DOMAIN, OrtStatus * (*)(OrtSessionOptions *, OrtDomain *))(options, domain);
}
