/* A state, a checkpointer and the objects that it writes, with time that the test moves, faults
 * that it plants, and a history by which it knows what every state must be.
 *
 * Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_CHECKPOINT_WORLD_H
#define FCAP_TESTS_CHECKPOINT_WORLD_H

#include "fcap/checkpointer.h"
#include "fcap/restore.h"

#include "lib/fake_objects.h"
#include "lib/fake_state.h"

#define WORLD_NOW_MS 1700000000000ll

/* One change that a batch made, in the order of writing. */
struct world_change {
    uint64_t sequence;
    enum fcap_family family;
    enum fcap_change change;
    struct fcap_buffer key;
    struct fcap_buffer value;
    uint64_t hash; /* of the key: most others are passed over by it */
};

/* Who is at work: one of the checkpointer's threads, as far as it needs them. */
enum world_actor {
    WORLD_NOBODY,
    WORLD_SHIPPER,
    WORLD_MATERIALISER,
};

struct checkpoint_world {
    struct fcap_clock clock;
    int64_t now_ms; /* monotonic */
    int64_t wall_ms;
    char directory[128]; /* of everything; the state is "state" in it */
    char state_directory[160];
    struct fake_objects objects;
    uint32_t faults; /* of 1000 calls of the objects, so many fail; some only seem to */
    size_t fail_at;  /* the call that fails, counted from 1; 0: none */
    size_t calls;    /* of the objects */
    /* Called within each call of the objects, before that does anything. NULL: not. */
    void (*during)(enum fake_objects_call call, const char *name);
    uint32_t meanwhile; /* within so many of 1000 calls, and of snapshots, others get on */
    size_t entries_max; /* of the batches that are written then */
    enum world_actor actor;
    bool is_nested;    /* others get on while `actor` waits */
    int64_t due_ms[3]; /* when each is to be called again */
    int64_t write_ms;  /* how long each write takes */
    uint64_t written;  /* calls of write */
    struct fake_state state;
    bool has_state;
    struct fcap_checkpointer_settings settings;
    struct fcap_checkpointer *checkpointer; /* NULL: no process runs */
    struct fcap_restore_settings restoring; /* threads, limit, cancel: what restores use of it */
    struct world_change *history;
    size_t change_count;
    size_t change_capacity;
    uint64_t random;
    char told[64][256]; /* what the checkpointer said, the newest last */
    size_t told_count;
};

extern struct checkpoint_world world;

int checkpoint_world_setup(void **unused);
int checkpoint_world_teardown(void **unused);
/* The same for one seed after the other. */
void checkpoint_world_init(uint64_t seed);
void checkpoint_world_done(void);

uint32_t world_random(uint32_t bound);

/* Starts a process on the state that is there. */
void world_open(void);
/* Ends it as kill -9 does: whatever was not finished is gone. */
void world_kill(void);
/* Ends it in good order. */
void world_stop(void);

/* Writes a batch with `entries` changes to keys out of `keys`, each value `bytes` large. */
void world_write(size_t entries, uint32_t keys, size_t bytes);
/* The world's own history of changes ends with this batch: what came later never was. */
void world_forget_after(uint64_t sequence);
/* What a thread of the checkpointer does when it is woken or its time has come, and not before. */
void world_let(enum world_actor actor);
/* Both, once. Gives when one of them is due again. */
int64_t world_step(void);
/* Steps until nothing is due any more. */
void world_rest(void);
/* Lets so much time pass, steps as they come due, and rests. */
void world_pass(int64_t ms);

/* The state directory is lost: what restores next starts from nothing. */
void world_lose_state(void);
/* Restores, and makes the state the world's. Fails the test when that fails. Compares the state
 * with the history, which is cut off behind it. */
struct fcap_restore_report world_restore(void);
/* Only the call. */
enum fcap_status world_try_restore(struct fcap_restore_report *ret_report,
                                   struct fcap_error *error);
enum fcap_status world_verify(struct fcap_restore_report *ret_report, struct fcap_error *error);
/* Fails the test unless the state is what the history makes of the batches up to its sequence. */
void world_compare(const struct fake_state *state);

/* Objects whose name holds this text. */
size_t world_count(const char *text);
/* The name of one of them, in their order; NULL: none. Valid until the next call. */
const char *world_find(const char *text, size_t index);
/* All bytes of one; the caller frees them. */
struct fcap_buffer world_read(const char *name);
enum world_damage_kind {
    WORLD_FLIPPED,
    WORLD_CUT,
    WORLD_LOST,
    WORLD_DAMAGES,
};
/* Damages an object that is not empty. */
void world_damage(const char *name, enum world_damage_kind kind);
/* Makes one. */
void world_make(const char *name, struct fcap_bytes bytes);
bool world_was_told(const char *text);
struct fcap_checkpoint_metrics world_metrics(void);
/* Fails the test unless every object that the newest manifest names is there and whole, and every
 * partition is as it says. Gives the manifest; the caller frees it. */
struct fcap_checkpoint world_newest(void);

#endif
