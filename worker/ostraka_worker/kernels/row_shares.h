/* Rows in even shares, as AVX-512 reads them: the sums of a share, of PANEL outputs, stay in its registers. */
#pragma once
#include <stdint.h>

/* More, and the sums do not fit the registers. */
enum { MOST_SHARED = 14 };

/* Calls a macro for each number of rows that a share can have. */
#define EACH_SHARE(of) of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8) of(9) of(10) of(11) of(12) of(13) of(14)

/* What is named `name` and a number of rows, at the place of that number. */
#define BY_ROWS(name)                                                                                                         \
    {NULL, name##1, name##2, name##3, name##4, name##5, name##6, name##7, name##8, name##9, name##10, name##11, name##12,     \
     name##13, name##14}

/* Of 20 rows two times 10. Of all rows, the last share has what is left. */
static inline int share_of(int64_t rows) {
    const int64_t shares = (rows + MOST_SHARED - 1) / MOST_SHARED;
    return (int)((rows + shares - 1) / shares);
}
