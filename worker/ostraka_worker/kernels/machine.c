/* What this machine can run. AMX tiles must also be asked of the kernel, once a process; forks inherit them. */
#include "attention.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_TILES = 0x1023, TILE_DATA = 18 };

#ifndef SOURCES
#define SOURCES "" /* build.py names them */
#endif

const char *made_from(void) { return SOURCES; }

int has_avx512(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

int has_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

int has_vnni_bf16(void) { return has_vnni() && __builtin_cpu_supports("avx512bf16"); }

int has_amx(void) {
    unsigned a = 7, b = 0, c = 0, d = 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const unsigned wanted = 1u << 22 | 1u << 24 | 1u << 25; /* bfloat16, tiles, 8 bits */
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, REQUEST_TILES, TILE_DATA) == 0;
}
