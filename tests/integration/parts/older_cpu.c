/* Preloaded, it has a process see a CPU without AMX; compiled with -DNO_BF16 or -DNO_VNNI, without these either, with
   -DNO_AVX512, without any of AVX-512: CPUID traps here, and is answered with less. Exit code 77 where the CPU cannot trap it. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012 };

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (memcmp((void *)at[REG_RIP], "\x0f\xa2", 2) != 0) { /* a fault like any other */
        signal(number, SIG_DFL);
        return;
    }
    unsigned leaf = at[REG_RAX], part = at[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
    if (leaf == 7 && part == 0) {
        d &= ~(1u << 22 | 1u << 24 | 1u << 25);
#ifdef NO_VNNI
        c &= ~(1u << 11);
#endif
#ifdef NO_AVX512
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 30 | 1u << 31);
        c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
        d &= ~(1u << 8 | 1u << 23);
#endif
    }
    if (leaf == 7 && part == 1) {
        a &= ~(1u << 21);
#if defined NO_AVX512 || defined NO_BF16
        a &= ~(1u << 5);
#endif
    }
    at[REG_RAX] = a, at[REG_RBX] = b, at[REG_RCX] = c, at[REG_RDX] = d, at[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction act = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &act, NULL);
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0)
        _exit(77);
}
