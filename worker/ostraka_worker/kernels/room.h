/* Memory that one call leaves to the next of its thread: to ask for it anew would cost page faults. */
#pragma once
#include <stddef.h>

/* Returns NULL where there is none. What was handed out before is no longer valid. */
char *make_room(size_t bytes);

static inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
