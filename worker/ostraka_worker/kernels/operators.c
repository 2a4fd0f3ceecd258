/* The kernels as ONNX Runtime operators of the domain "ostraka": LineAttention; in bfloat16 LineAttentionBf16 (AMX),
 * LineAttentionBf16Dots (AVX-512) and ToBf16; Heads and FeedForward, between two attentions, each in float, of weights in float or
 * in bfloat16, and in 8 bits. */
#include "attention.h"
#include "layers.h"
#include "ort.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 13 };

typedef struct Kernel Kernel;

/* Of inputs and outputs one letter each: f float, h bfloat16, b 8 bits, i and l integers of 32 and 64. */
typedef struct {
    OrtOp op;
    const char *name, *inputs, *outputs;
    const Variant *variant; /* of an attention */
    const Linears *linears; /* of what lies between two */
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

/* Takes weights of `inner` inputs, one to three inputs of the operator; returns whether they are that, in whole panels. */
static int take_weights(const Linears *linears, const Matrix **next, int64_t inner, Weights *weights) {
    const Matrix *panels = (*next)++, *scales = linears->is_scaled ? (*next)++ : NULL;
    const Matrix *offsets = linears->is_shifted ? (*next)++ : NULL;
    const int64_t outer = panels->shape[0] * PANEL;
    *weights = (Weights){
        panels->data, scales ? scales->data : NULL, offsets ? offsets->data : NULL, (int)inner, (int)outer,
    };
    return inner % PANEL == 0 && panels->shape[1] == linears->panel_elements(inner) &&
           (!scales || (scales->shape[0] == 1 && scales->shape[1] == outer)) &&
           (!offsets || (offsets->shape[0] == 1 && offsets->shape[1] == outer));
}

typedef struct {
    OrtTable table;
    const OrtKernelContext *context;
} Place;

/* On the threads of the session, of which this one is the first. */
static void run_parts(const void *context, void (*part)(void *, size_t), size_t parts, void *data) {
    typedef OrtStatus *(*For)(const OrtKernelContext *, void (*)(void *, size_t), size_t, size_t, void *);
    const Place *place = context;
    OrtStatus *failed = CALL(place->table, PARALLEL_FOR, For)(place->context, part, parts, 0, data);
    if (failed) { /* before it began */
        CALL(place->table, RELEASE_STATUS, void (*)(OrtStatus *))(failed);
        for (size_t index = 0; index < parts; index++)
            part(data, index);
    }
}

static OrtStatus *run_heads(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[MOST_INPUTS]; /* normed, positions, weights, bias, gains of heads, cosines, sines */
    TRY(all_inputs(kernel, context, in));
    const Linears *linears = kernel->operator->linears;
    const Matrix *next = in + 2;
    const int64_t rows = in[0].shape[0], parts = kernel->heads + 2 * kernel->kv_heads;
    const Place place = {kernel->table, context};
    Heads heads = {
        .linears = linears, .threads = {run_parts, &place}, .normed = in[0].data, .positions = in[1].data, .rows = rows,
    };
    int fits = take_weights(linears, &next, in[0].shape[1], &heads.weights) && in[1].shape[0] == rows;
    const Matrix *bias = next, *gains = next + 1, *cosines = next + 2, *sines = next + 3;
    const int64_t dims = heads.weights.outer / parts;
    fits = fits && heads.weights.outer == dims * parts && bias->shape[1] == dims * parts && dims % 32 == 0 &&
           (!gains->shape[0] || gains->shape[0] == kernel->heads + kernel->kv_heads) && gains->shape[1] == dims &&
           cosines->shape[1] == dims / 2 && sines->shape[1] == dims / 2 && sines->shape[0] == cosines->shape[0];
    if (!fits)
        return refuse(kernel->table, "the inputs' shapes do not fit each other");
    heads.bias = bias->data, heads.head_gains = gains->shape[0] ? gains->data : NULL;
    heads.cosines = cosines->data, heads.sines = sines->data, heads.contexts = cosines->shape[0];
    heads.heads = (int)kernel->heads, heads.kv_heads = (int)kernel->kv_heads, heads.dims = (int)dims;
    heads.epsilon = kernel->epsilon;
    TRY(output(kernel->table, context, 0, rows, kernel->heads * dims, &heads.query));
    TRY(output(kernel->table, context, 1, rows, kernel->kv_heads * dims, &heads.key));
    TRY(output(kernel->table, context, 2, rows, kernel->kv_heads * dims, &heads.value));
    return refused(kernel->table, make_heads(&heads));
}

static OrtStatus *run_feed_forward(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[MOST_INPUTS]; /* attended, before; weights of out; gain; weights of wide and of down; the next gain */
    TRY(all_inputs(kernel, context, in));
    const Linears *linears = kernel->operator->linears;
    const int64_t rows = in[0].shape[0], hidden = in[1].shape[1];
    const Place place = {kernel->table, context};
    FeedForward layer = {
        .linears = linears, .threads = {run_parts, &place}, .attended = in[0].data, .before = in[1].data, .rows = rows,
        .epsilon = kernel->epsilon,
    };
    const Matrix *next = in + 2;
    int fits = take_weights(linears, &next, in[0].shape[1], &layer.out) && layer.out.outer == hidden;
    const Matrix *gain = next++;
    fits = fits && take_weights(linears, &next, hidden, &layer.wide) &&
           take_weights(linears, &next, layer.wide.outer / 2, &layer.down) && layer.down.outer == hidden &&
           in[1].shape[0] == rows && gain->shape[1] == hidden && next->shape[1] == hidden;
    if (!fits)
        return refuse(kernel->table, "the inputs' shapes do not fit each other");
    layer.gain = gain->data, layer.next_gain = next->data;
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

#define OPERATOR(its_name, its_inputs, its_outputs, its_run, ...)                                                    \
    {.op = {.version = ORT_API, .name = name, .provider = provider, .input_type = input_type,                        \
            .input_count = input_count, .output_type = output_type, .output_count = output_count, .destroy = free,   \
            .input_kind = required, .output_kind = required, .input_memory = memory, .create = create,               \
            .compute = compute},                                                                                     \
     .name = its_name, .inputs = its_inputs, .outputs = its_outputs, .run = its_run, __VA_ARGS__}

/* A name stands for the layout of its weights too: with another one comes another name, or an older folder would be misread. */
static const Operator operators[] = {
    OPERATOR("LineAttention", "fffffi", "f", read_lines, .variant = &FP32),
    OPERATOR("LineAttentionBf16", "fhhhhi", "f", read_lines, .variant = &BF16),
    OPERATOR("LineAttentionBf16Dots", "fhhhhi", "f", read_lines, .variant = &BF16_DOTS),
    OPERATOR("ToBf16", "f", "h", round_rows),
    OPERATOR("Fp32Heads", "flfffff", "fff", run_heads, .linears = &FP32_LINEARS),
    OPERATOR("Fp32FeedForward", "fffffff", "ff", run_feed_forward, .linears = &FP32_LINEARS),
    OPERATOR("HalvesHeads", "flhffff", "fff", run_heads, .linears = &BF16_LINEARS),
    OPERATOR("HalvesFeedForward", "ffhfhhf", "ff", run_feed_forward, .linears = &BF16_LINEARS),
    OPERATOR("HalvesHeadsAmx", "flhffff", "fff", run_heads, .linears = &BF16_AMX_LINEARS),
    OPERATOR("HalvesFeedForwardAmx", "ffhfhhf", "ff", run_feed_forward, .linears = &BF16_AMX_LINEARS),
    OPERATOR("Int8Heads", "flbfffff", "fhh", run_heads, .linears = &INT8_LINEARS),
    OPERATOR("Int8FeedForward", "ffbffbfbff", "ff", run_feed_forward, .linears = &INT8_LINEARS),
    OPERATOR("Int8HeadsVnni", "flbfiffff", "fff", run_heads, .linears = &INT8_VNNI_LINEARS),
    OPERATOR("Int8HeadsVnniBf16", "flbfiffff", "fhh", run_heads, .linears = &INT8_VNNI_BF16_LINEARS),
    OPERATOR("Int8FeedForwardVnni", "ffbfifbfibfif", "ff", run_feed_forward, .linears = &INT8_VNNI_LINEARS),
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
