/* A load whose stacks hardly repeat: each level calls one of sixteen functions at random, down to a
 * random depth, and does some work at the bottom, now and then in the kernel.
 * Usage: load SECONDS. Build with frame pointers and without tail calls. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t state;
static volatile uint64_t sink;

static uint64_t chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void bottom(void) {
    if (chance() % 4 == 0) {
        sink += (uint64_t)getppid();
        return;
    }
    for (int turn = 0; turn < 3000; turn++)
        sink += sink * 31 + (uint64_t)turn;
}

static void descend(int depth);

#define LEVEL(name) \
    static __attribute__((noinline)) void name(int depth) { \
        descend(depth - 1); \
        sink++; \
    }
LEVEL(north) LEVEL(north_east) LEVEL(east) LEVEL(south_east)
LEVEL(south) LEVEL(south_west) LEVEL(west) LEVEL(north_west)
LEVEL(spring) LEVEL(summer) LEVEL(autumn) LEVEL(winter)
LEVEL(dawn) LEVEL(noon) LEVEL(dusk) LEVEL(midnight)

static void (*const levels[])(int) = {
    north, north_east, east, south_east, south, south_west, west, north_west,
    spring, summer, autumn, winter, dawn, noon, dusk, midnight,
};

static __attribute__((noinline)) void descend(int depth) {
    if (depth <= 0)
        bottom();
    else
        levels[chance() % 16](depth);
    sink++;
}

int main(int argc, char **argv) {
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    state = 88172645463325252ULL ^ ((uint64_t)getpid() << 32);
    while (time(NULL) < end)
        for (int round = 0; round < 200; round++)
            descend(4 + (int)(chance() % 10));
    return 0;
}
