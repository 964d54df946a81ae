/* Whether the matrix unit may be used: the processor must have it and the system must grant it. */
#define _GNU_SOURCE
#include "amx.h"

#ifdef CK_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_GET_XCOMP_PERM 0x1022
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

static int usable = -1;

static int ask(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  if (!(d & (1u << 22)) || !(d & (1u << 24))) return 0; /* bf16 products; tiles */
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) return 0;
  unsigned long granted = 0;
  if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &granted)) return 0;
  return (granted >> XFEATURE_XTILEDATA) & 1;
}

__attribute__((constructor)) static void begin(void) { usable = ask(); }

int ck_amx_usable(void) { return usable; }

/* For tests and for comparison: 0 keeps the matrix unit out of use. Returns whether it is in use now. */
int ck_allow_amx(int allowed) {
  usable = allowed ? ask() : 0;
  return usable;
}
#else
int ck_amx_usable(void) { return 0; }
int ck_allow_amx(int allowed) {
  (void)allowed;
  return 0;
}
#endif
