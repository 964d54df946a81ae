/* Several calls in one: between them nothing of Python runs, and the threads of the pool stay awake. */
#include "common.h"

typedef struct {
  int (*function)(void *arguments);
  void *arguments;
} one_call;

/* Stops at the first call that fails; its number goes to `failed`. */
int ck_run(const one_call *calls, int64_t count, int64_t *failed) {
  for (int64_t i = 0; i < count; i++) {
    int code = calls[i].function(calls[i].arguments);
    if (code != CK_OK) {
      *failed = i;
      return code;
    }
  }
  return CK_OK;
}
