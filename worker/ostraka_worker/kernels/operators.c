/* The kernels as ONNX Runtime operators of the domain "ostraka": LineAttention, LineAttentionBf16 and ToBf16. */
#include "attention.h"
#include "ort.h"

#include <stdlib.h>

typedef struct {
    OrtOp op;
    const char *name;
    const Variant *variant; /* NULL: ToBf16 */
} Operator;

typedef struct {
    OrtTable table;
    const Operator *operator;
    int64_t heads, kv_heads;
} Kernel;

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

static OrtStatus *get_data(OrtTable table, const OrtValue *value, void **data) {
    return CALL(table, GET_DATA, OrtStatus * (*)(const OrtValue *, void **))(value, data);
}

static OrtStatus *input(OrtTable table, OrtKernelContext *context, size_t index, Matrix *matrix) {
    const OrtValue *value = NULL;
    OrtShape *shape = NULL;
    size_t axes = 0;
    TRY(CALL(table, GET_INPUT, OrtStatus * (*)(OrtKernelContext *, size_t, const OrtValue **))(context, index, &value));
    TRY(CALL(table, GET_SHAPE, OrtStatus * (*)(const OrtValue *, OrtShape **))(value, &shape));
    OrtStatus *status = CALL(table, GET_DIMENSIONS_COUNT, OrtStatus * (*)(const OrtShape *, size_t *))(shape, &axes);
    if (!status && axes == 2)
        status = CALL(table, GET_DIMENSIONS, OrtStatus * (*)(const OrtShape *, int64_t *, size_t))(shape, matrix->shape, 2);
    CALL(table, RELEASE_SHAPE, void (*)(OrtShape *))(shape);
    TRY(status);
    return axes == 2 ? get_data(table, value, &matrix->data) : refuse(table, "each input has two axes");
}

static OrtStatus *output(OrtTable table, OrtKernelContext *context, const int64_t *shape, void **data) {
    typedef OrtStatus *(*Get)(OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **);
    OrtValue *value = NULL;
    TRY(CALL(table, GET_OUTPUT, Get)(context, 0, shape, 2, &value));
    return get_data(table, value, data);
}

static OrtStatus *round_rows(const Kernel *kernel, OrtKernelContext *context) {
    Matrix rows;
    void *rounded;
    TRY(input(kernel->table, context, 0, &rows));
    TRY(output(kernel->table, context, rows.shape, &rounded));
    round_to_bf16(rows.data, rounded, rows.shape[0] * rows.shape[1]);
    return NULL;
}

static OrtStatus *read_lines(const Kernel *kernel, OrtKernelContext *context) {
    Matrix in[6]; /* query, key, value, past key, past value, lines */
    for (size_t index = 0; index < 6; index++)
        TRY(input(kernel->table, context, index, in + index));
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
    TRY(output(kernel->table, context, in[0].shape, (void **)&call.out));
    const char *wrong = attend(kernel->operator->variant, &call);
    return wrong ? refuse(kernel->table, wrong) : NULL;
}

static OrtStatus *compute(void *kernel, OrtKernelContext *context) {
    return ((Kernel *)kernel)->operator->variant ? read_lines(kernel, context) : round_rows(kernel, context);
}

static OrtStatus *create(const OrtOp *op, OrtTable table, const OrtKernelInfo *info, void **made) {
    typedef OrtStatus *(*Get)(const OrtKernelInfo *, const char *, int64_t *);
    const Operator *operator= (const Operator *)op;
    Kernel kernel = {table, operator, 1, 1};
    if (operator->variant) {
        TRY(CALL(table, GET_ATTRIBUTE_INT, Get)(info, "heads", &kernel.heads));
        TRY(CALL(table, GET_ATTRIBUTE_INT, Get)(info, "kv_heads", &kernel.kv_heads));
        if (kernel.kv_heads < 1 || kernel.heads < 1 || kernel.heads % kernel.kv_heads)
            return refuse(table, "heads must be a multiple of kv_heads");
    }
    Kernel *copy = malloc(sizeof kernel);
    if (!copy)
        return refuse(table, "out of memory");
    *copy = kernel;
    *made = copy;
    return NULL;
}

static const char *name(const OrtOp *op) { return ((const Operator *)op)->name; }
static const char *provider(const OrtOp *op) { return NULL; }
static int is_bf16(const OrtOp *op) { return ((const Operator *)op)->variant == &BF16; }
static int is_rounding(const OrtOp *op) { return !((const Operator *)op)->variant; }
static size_t input_count(const OrtOp *op) { return is_rounding(op) ? 1 : 6; }
static size_t output_count(const OrtOp *op) { return 1; }
static int required(const OrtOp *op, size_t index) { return ORT_REQUIRED; }
static int memory(const OrtOp *op, size_t index) { return ORT_DEFAULT_MEMORY; }
static int output_type(const OrtOp *op, size_t index) { return is_rounding(op) ? ORT_UINT16 : ORT_FLOAT; }

static int input_type(const OrtOp *op, size_t index) {
    if (index == 5)
        return ORT_INT32;
    return index && is_bf16(op) ? ORT_UINT16 : ORT_FLOAT;
}

#define OPERATOR(its_name, its_variant)                                                                              \
    {.op = {.version = ORT_API, .name = name, .provider = provider, .input_type = input_type,                        \
            .input_count = input_count, .output_type = output_type, .output_count = output_count, .destroy = free,   \
            .input_kind = required, .output_kind = required, .input_memory = memory, .create = create,               \
            .compute = compute},                                                                                     \
     .name = its_name, .variant = its_variant}

static const Operator operators[] = {
    OPERATOR("LineAttention", &FP32),
    OPERATOR("LineAttentionBf16", &BF16),
    OPERATOR("ToBf16", NULL),
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
