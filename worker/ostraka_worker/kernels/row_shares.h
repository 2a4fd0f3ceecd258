/* Rows in even shares, as AVX-512 reads them: the sums of a share, of PANEL outputs, stay in its registers. */
#pragma once
#include <stdint.h>

/* More, and the sums do not fit the registers. */
enum { MOST_SHARED = 14 };

/* Of 20 rows two times 10. Of all rows, the last share has what is left. */
static inline int share_of(int64_t rows) {
    const int64_t shares = (rows + MOST_SHARED - 1) / MOST_SHARED;
    return (int)((rows + shares - 1) / shares);
}
