#include "room.h"

#include <stdlib.h>

static _Thread_local char *room;
static _Thread_local size_t room_bytes;

char *make_room(size_t bytes) {
    if (bytes <= room_bytes)
        return room;
    free(room);
    room_bytes = bytes + bytes / 4;
    room = aligned_alloc(64, aligned(room_bytes));
    if (!room)
        room_bytes = 0;
    return room;
}
