#include "decode_parser.h"

#include "fcap/assert.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Stands before each piece. Its size is a multiple of the strictest alignment, so pieces are
 * aligned as malloc's memory is. */
struct piece {
    alignas(max_align_t) size_t size; /* rounded up */
};

struct overflow_block {
    alignas(max_align_t) struct overflow_block *next;
};

static size_t round_up(size_t size)
{
    size_t unit = alignof(max_align_t);
    return (size + unit - 1) / unit * unit;
}

void fcap_decode_arena_init(struct fcap_decode_arena *arena)
{
    *arena = (struct fcap_decode_arena){.block = malloc(FCAP_DECODE_ARENA_BYTES)};
    FCAP_ASSERT(arena->block != NULL);
}

void fcap_decode_arena_done(struct fcap_decode_arena *arena)
{
    fcap_decode_arena_reset(arena);
    free(arena->block);
    *arena = (struct fcap_decode_arena){0};
}

void fcap_decode_arena_reset(struct fcap_decode_arena *arena)
{
    struct overflow_block *block = arena->overflow;
    while (block != NULL) {
        struct overflow_block *next = block->next;
        free(block);
        block = next;
    }
    arena->overflow = NULL;
    arena->used = 0;
}

void *fcap_decode_arena_take(struct fcap_decode_arena *arena, size_t size)
{
    FCAP_ASSERT(size < SIZE_MAX / 2);
    size_t rounded = round_up(size);
    size_t needed = sizeof(struct piece) + rounded;
    struct piece *piece;
    if (needed <= FCAP_DECODE_ARENA_BYTES - arena->used) {
        piece = (struct piece *)(void *)(arena->block + arena->used);
        arena->used += needed;
    } else {
        struct overflow_block *block = malloc(sizeof *block + needed);
        FCAP_ASSERT(block != NULL);
        block->next = arena->overflow;
        arena->overflow = block;
        piece = (struct piece *)(block + 1);
    }
    piece->size = rounded;
    return piece + 1;
}

void *fcap_decode_arena_grow(struct fcap_decode_arena *arena, void *old, size_t size)
{
    if (old == NULL) {
        return fcap_decode_arena_take(arena, size);
    }
    struct piece *piece = (struct piece *)old - 1;
    if (size <= piece->size) {
        return old;
    }
    size_t added = round_up(size) - piece->size;
    bool is_last = (uint8_t *)old + piece->size == arena->block + arena->used;
    if (is_last && added <= FCAP_DECODE_ARENA_BYTES - arena->used) {
        piece->size += added;
        arena->used += added;
        return old;
    }
    void *bigger = fcap_decode_arena_take(arena, size);
    memcpy(bigger, old, piece->size);
    return bigger;
}
