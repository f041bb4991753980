/* The port to kept objects in memory, ready to fail on demand. Any number of threads, as the port
 * says; the knobs may be turned meanwhile. */
#ifndef FCAP_TESTS_FAKE_OBJECTS_H
#define FCAP_TESTS_FAKE_OBJECTS_H

#include "fcap/objects.h"

#include <pthread.h>

enum fake_objects_call {
    FAKE_OBJECTS_BEGIN,
    FAKE_OBJECTS_WRITE,
    FAKE_OBJECTS_FINISH,
    FAKE_OBJECTS_READ,
    FAKE_OBJECTS_LIST,
    FAKE_OBJECTS_REMOVE,
    FAKE_OBJECTS_SWEEP,
    FAKE_OBJECTS_LOCK,
    FAKE_OBJECTS_CALLS
};

/* Called before each call does anything, without a lock: it may wait (a slow volume), turn knobs,
 * or look at the objects. `name`: of the object, or the prefix. */
typedef void (*fake_objects_hook)(void *context, enum fake_objects_call call, const char *name);

struct fake_object; /* private */

/* Private: the call after so many more gives this status. */
struct fake_objects_plan {
    uint64_t at;
    enum fcap_status status;
};

struct fake_objects {
    struct fcap_objects port; /* first */
    /* Private. */
    pthread_mutex_t mutex;
    struct fake_object *objects; /* by name */
    size_t count;
    size_t capacity;
    struct fcap_object_writer *writers;
    struct fcap_object_lock *locks;
    struct fake_objects_plan plans[FAKE_OBJECTS_CALLS];
    uint64_t calls[FAKE_OBJECTS_CALLS];
    char (*litter)[FCAP_OBJECT_NAME_MAX + 1]; /* names that dead writers were to make */
    size_t litter_count;
    enum fcap_status away;
    enum fcap_status late;
    uint64_t bytes;
    uint64_t bytes_max;
    fake_objects_hook hook;
    void *hook_context;
};

void fake_objects_init(struct fake_objects *fake);
void fake_objects_done(struct fake_objects *fake);

/* The n-th call of this kind from now on (1: the next) does nothing and gives `status`; once. A
 * plan that was made before is replaced. */
void fake_objects_fail(struct fake_objects *fake, enum fake_objects_call call, uint64_t n,
                       enum fcap_status status);
/* Every call gives it, until OK is set: the volume is away. Locks stay. */
void fake_objects_away(struct fake_objects *fake, enum fcap_status status);
/* The next finish() makes the object visible and gives `status` all the same. */
void fake_objects_fail_late(struct fake_objects *fake, enum fcap_status status);
/* No more than this is held, in finished objects and in those being written; 0: no limit. */
void fake_objects_limit(struct fake_objects *fake, uint64_t bytes_max);
void fake_objects_watch(struct fake_objects *fake, fake_objects_hook hook, void *context);

/* The process that used it ends: its writers leave litter, its locks are free. What it had is not
 * to be touched any more. */
void fake_objects_crash(struct fake_objects *fake);

/* Damage behind everybody's back: only `size` bytes are left; one bit is another; it has never been
 * there. The object must be there. */
void fake_objects_cut(struct fake_objects *fake, const char *name, uint64_t size);
void fake_objects_flip(struct fake_objects *fake, const char *name, uint64_t bit);
void fake_objects_lose(struct fake_objects *fake, const char *name);

/* How many calls of this kind were made, failed ones, too. */
uint64_t fake_objects_calls(struct fake_objects *fake, enum fake_objects_call call);
/* Bytes held; remains of dead writers. */
uint64_t fake_objects_bytes(struct fake_objects *fake);
size_t fake_objects_litter(struct fake_objects *fake);

#endif
