/* Tests whether this compiler keeps the stores into a tile configuration. Exit status: 0 kept, 3 dropped, 1 unknown.
 *
 * GCC 12 declares that ldtilecfg reads 8 bytes. It reads 64, so at -O2 and -O3 the optimiser takes the stores into the
 * other 56 for dead and drops them. llama.cpp then loads garbage on a processor with AMX, and the process dies by
 * SIGSEGV. Compile this file like llama.cpp, as C or as C++: -O3 -mamx-tile.
 *
 * The result is the same on every x86-64 processor: without AMX, or without the kernel's permission to use it,
 * ldtilecfg raises a signal, which is caught. Then the configuration is looked for on the stack. */
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, BELOW = 16384, KEPT = 0, UNKNOWN = 1, DROPPED = 3 };

struct configuration { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; };

static sigjmp_buf back;

static void leave(int number) { siglongjmp(back, number); }

static __attribute__((noinline)) void configure(void) {
    struct configuration tiles __attribute__((aligned(64)));
    memset(&tiles, 0, sizeof tiles);
    tiles.palette = 1;
    for (int i = 0; i < TILES; ++i) { tiles.rows[i] = 16; tiles.row_bytes[i] = 64; }
    _tile_loadconfig(&tiles);
}

/* Keeps the configuration far below main's frame, so that later calls from main do not overwrite it. */
static __attribute__((noinline)) int configure_far_below(void) {
    volatile char between[4096];
    between[0] = 0;
    configure();
    return between[0];
}

static int is_whole(const volatile uint8_t *at) {
    for (int i = 0; i < 64; ++i) {
        int of_row_bytes = i >= 16 && i < 16 + 2 * TILES, of_rows = i >= 48 && i < 48 + TILES;
        int wanted = i == 0 ? 1 : of_row_bytes ? 64 * (i % 2 == 0) : of_rows ? 16 : 0;
        if (at[i] != wanted) return 0;
    }
    return 1;
}

int main(void) {
    stack_t other; /* for the handler, which would overwrite the configuration otherwise */
    struct sigaction action;
    memset(&other, 0, sizeof other);
    memset(&action, 0, sizeof action);
    other.ss_size = 65536;
    other.ss_sp = malloc(other.ss_size);
    action.sa_handler = leave;
    action.sa_flags = SA_ONSTACK;
    if (!other.ss_sp || sigaltstack(&other, NULL) || sigaction(SIGILL, &action, NULL) ||
        sigaction(SIGSEGV, &action, NULL))
        return UNKNOWN;
    if (!sigsetjmp(back, 1)) configure_far_below();
    uintptr_t here = (uintptr_t)__builtin_frame_address(0) / 64 * 64;
    for (uintptr_t at = here - BELOW; at < here; at += 64)
        if (is_whole((const volatile uint8_t *)at)) return KEPT;
    return DROPPED;
}
