/* What a custom operator needs of ONNX Runtime's C interface, whose order and size never change (only appended to). */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtShape OrtShape;
typedef struct OrtDomain OrtDomain;
typedef struct OrtSessionOptions OrtSessionOptions;

enum { ORT_API = 16, ORT_INVALID_ARGUMENT = 2, ORT_DEFAULT_MEMORY = 0, ORT_REQUIRED = 0 };
enum { ORT_FLOAT = 1, ORT_INT8 = 3, ORT_UINT16 = 4, ORT_INT32 = 6, ORT_INT64 = 7 };

/* Places in the table of functions. */
enum {
    CREATE_STATUS = 0,
    CREATE_DOMAIN = 26,
    DOMAIN_ADD = 27,
    ADD_DOMAIN = 28,
    GET_DATA = 51,
    GET_DIMENSIONS_COUNT = 61,
    GET_DIMENSIONS = 62,
    GET_SHAPE = 65,
    GET_ATTRIBUTE_FLOAT = 85,
    GET_ATTRIBUTE_INT = 86,
    GET_INPUT = 90,
    GET_OUTPUT = 91,
    RELEASE_STATUS = 93,
    RELEASE_SHAPE = 99,
    PARALLEL_FOR = 274
};

typedef void (*OrtFunction)(void);
typedef const OrtFunction *OrtTable;

typedef struct {
    OrtTable (*get)(uint32_t version);
    const char *(*version)(void);
} OrtBase;

typedef struct OrtOp OrtOp;
struct OrtOp {
    uint32_t version;
    void *(*old_create)(const OrtOp *, OrtTable, const OrtKernelInfo *);
    const char *(*name)(const OrtOp *);
    const char *(*provider)(const OrtOp *);
    int (*input_type)(const OrtOp *, size_t);
    size_t (*input_count)(const OrtOp *);
    int (*output_type)(const OrtOp *, size_t);
    size_t (*output_count)(const OrtOp *);
    void (*old_compute)(void *, OrtKernelContext *);
    void (*destroy)(void *);
    int (*input_kind)(const OrtOp *, size_t);
    int (*output_kind)(const OrtOp *, size_t);
    int (*input_memory)(const OrtOp *, size_t);
    void *variadic[4];
    OrtStatus *(*create)(const OrtOp *, OrtTable, const OrtKernelInfo *, void **);
    OrtStatus *(*compute)(void *, OrtKernelContext *);
    void *newer[16]; /* of later versions, which this one's number leaves unread */
};
