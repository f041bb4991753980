#include "lib/fake_objects.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

struct fake_object {
    char name[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_buffer bytes;
};

struct fcap_object_writer {
    struct fcap_object_writer *next;
    char name[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_buffer bytes;
    bool has_failed;
};

struct fcap_object_lock {
    struct fcap_object_lock *next;
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    char holder[256];
};

static struct fake_objects *fake_of(struct fcap_objects *port)
{
    return (struct fake_objects *)port;
}

static void enter(struct fake_objects *fake)
{
    FCAP_ASSERT(pthread_mutex_lock(&fake->mutex) == 0);
}

static void leave(struct fake_objects *fake)
{
    FCAP_ASSERT(pthread_mutex_unlock(&fake->mutex) == 0);
}

static enum fcap_status tell(enum fcap_status status, const char *name, struct fcap_error *error)
{
    return status == FCAP_OK
               ? FCAP_OK
               : fcap_error_set(error, status, "%s: %s", name, fcap_status_text(status));
}

/* Counts a call; OK: it may be done. */
static enum fcap_status start(struct fake_objects *fake, enum fake_objects_call call,
                              const char *name, struct fcap_error *error)
{
    enter(fake);
    fake_objects_hook hook = fake->hook;
    void *context = fake->hook_context;
    leave(fake);
    if (hook != NULL) {
        hook(context, call, name);
    }
    enter(fake);
    struct fake_objects_plan *plan = &fake->plans[call];
    enum fcap_status status = fake->away;
    fake->calls[call]++;
    if (plan->at > 0 && --plan->at == 0) {
        status = plan->status;
    }
    leave(fake);
    return tell(status, name, error);
}

static bool is_prefix(const char *prefix)
{
    char name[FCAP_OBJECT_NAME_MAX + 1];
    size_t size = strlen(prefix);
    if (size == 0 || size > FCAP_OBJECT_NAME_MAX || prefix[size - 1] != '/') {
        return size == 0;
    }
    memcpy(name, prefix, size);
    name[size - 1] = '\0';
    return fcap_object_name_is_valid(name);
}

/* Where it stands, or would stand. */
static size_t place_of(const struct fake_objects *fake, const char *name)
{
    size_t at = 0;
    while (at < fake->count && strcmp(fake->objects[at].name, name) < 0) {
        at++;
    }
    return at;
}

static struct fake_object *find(const struct fake_objects *fake, const char *name)
{
    size_t at = place_of(fake, name);
    bool is_there = at < fake->count && strcmp(fake->objects[at].name, name) == 0;
    return is_there ? &fake->objects[at] : NULL;
}

/* --- writing --- */

static enum fcap_status begin(struct fcap_objects *port, const char *name,
                              struct fcap_object_writer **ret_writer, struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = start(fake, FAKE_OBJECTS_BEGIN, name, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_object_writer *writer = calloc(1, sizeof *writer);
    FCAP_ASSERT(writer != NULL);
    memcpy(writer->name, name, strlen(name) + 1);
    enter(fake);
    writer->next = fake->writers;
    fake->writers = writer;
    leave(fake);
    *ret_writer = writer;
    return FCAP_OK;
}

static enum fcap_status write_bytes(struct fcap_objects *port, struct fcap_object_writer *writer,
                                    struct fcap_bytes bytes, struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(!writer->has_failed); /* Only abandon() is left. */
    enum fcap_status status = start(fake, FAKE_OBJECTS_WRITE, writer->name, error);
    enter(fake);
    if (status == FCAP_OK && fake->bytes_max > 0 && fake->bytes + bytes.size > fake->bytes_max) {
        status = tell(FCAP_NO_SPACE, writer->name, error);
    }
    if (status == FCAP_OK) {
        fcap_buffer_put_bytes(&writer->bytes, bytes);
        fake->bytes += bytes.size;
    }
    writer->has_failed = status != FCAP_OK;
    leave(fake);
    return status;
}

/* Takes it out of the list; its bytes are no longer counted. */
static void detach(struct fake_objects *fake, struct fcap_object_writer *writer)
{
    struct fcap_object_writer **at = &fake->writers;
    while (*at != writer) {
        FCAP_ASSERT(*at != NULL); /* One that was given back before. */
        at = &(*at)->next;
    }
    *at = writer->next;
    fake->bytes -= writer->bytes.size;
}

static void insert(struct fake_objects *fake, struct fcap_object_writer *writer)
{
    size_t at = place_of(fake, writer->name);
    if (fake->count == fake->capacity) {
        fake->capacity = fake->capacity * 2 + 16;
        fake->objects = realloc(fake->objects, fake->capacity * sizeof *fake->objects);
        FCAP_ASSERT(fake->objects != NULL);
    }
    memmove(fake->objects + at + 1, fake->objects + at, (fake->count - at) * sizeof *fake->objects);
    fake->count++;
    memcpy(fake->objects[at].name, writer->name, sizeof writer->name);
    fake->objects[at].bytes = writer->bytes;
    fake->bytes += writer->bytes.size;
    writer->bytes = (struct fcap_buffer){0};
}

static enum fcap_status finish(struct fcap_objects *port, struct fcap_object_writer *writer,
                               struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(!writer->has_failed);
    enum fcap_status status = start(fake, FAKE_OBJECTS_FINISH, writer->name, error);
    enter(fake);
    detach(fake, writer);
    if (status == FCAP_OK && find(fake, writer->name) != NULL) {
        status = tell(FCAP_LOCKED, writer->name, error);
    }
    if (status == FCAP_OK) {
        insert(fake, writer);
        status = tell(fake->late, writer->name, error);
        fake->late = FCAP_OK;
    }
    leave(fake);
    fcap_buffer_done(&writer->bytes);
    free(writer);
    return status;
}

static void abandon(struct fcap_objects *port, struct fcap_object_writer *writer)
{
    struct fake_objects *fake = fake_of(port);
    if (writer == NULL) {
        return;
    }
    enter(fake);
    detach(fake, writer);
    leave(fake);
    fcap_buffer_done(&writer->bytes);
    free(writer);
}

/* --- reading, removing --- */

static enum fcap_status read_bytes(struct fcap_objects *port, const char *name, uint64_t offset,
                                   uint8_t *data, size_t size, size_t *ret_size,
                                   struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = start(fake, FAKE_OBJECTS_READ, name, error);
    if (status != FCAP_OK) {
        return status;
    }
    enter(fake);
    const struct fake_object *object = find(fake, name);
    if (object == NULL) {
        status = tell(FCAP_REFUSED, name, error);
    } else {
        size_t left = offset < object->bytes.size ? object->bytes.size - (size_t)offset : 0;
        *ret_size = size < left ? size : left;
        if (*ret_size > 0) {
            memcpy(data, object->bytes.data + offset, *ret_size);
        }
    }
    leave(fake);
    return status;
}

static enum fcap_status list(struct fcap_objects *port, const char *prefix,
                             fcap_object_visitor visitor, void *context, struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    enum fcap_status status = start(fake, FAKE_OBJECTS_LIST, prefix, error);
    if (status != FCAP_OK) {
        return status;
    }
    enter(fake); /* A copy: the visitor may make any call. */
    size_t count = fake->count;
    struct fake_object *objects = malloc((count + 1) * sizeof *objects);
    FCAP_ASSERT(objects != NULL);
    if (count > 0) {
        memcpy(objects, fake->objects, count * sizeof *objects);
    }
    leave(fake);
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        if (strncmp(objects[i].name, prefix, strlen(prefix)) == 0) {
            goes_on = visitor(context, objects[i].name, objects[i].bytes.size);
        }
    }
    free(objects);
    return FCAP_OK;
}

static void take_away(struct fake_objects *fake, struct fake_object *object)
{
    fake->bytes -= object->bytes.size;
    fcap_buffer_done(&object->bytes);
    fake->count--;
    memmove(object, object + 1, (fake->count - (size_t)(object - fake->objects)) * sizeof *object);
}

static enum fcap_status remove_object(struct fcap_objects *port, const char *name,
                                      struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = start(fake, FAKE_OBJECTS_REMOVE, name, error);
    enter(fake);
    struct fake_object *object = status == FCAP_OK ? find(fake, name) : NULL;
    if (object != NULL) {
        take_away(fake, object);
    }
    leave(fake);
    return status;
}

static enum fcap_status sweep(struct fcap_objects *port, const char *prefix,
                              struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(is_prefix(prefix));
    enum fcap_status status = start(fake, FAKE_OBJECTS_SWEEP, prefix, error);
    if (status != FCAP_OK) {
        return status;
    }
    enter(fake);
    size_t kept = 0;
    for (size_t i = 0; i < fake->litter_count; i++) {
        if (strncmp(fake->litter[i], prefix, strlen(prefix)) != 0) {
            memmove(fake->litter[kept++], fake->litter[i], sizeof fake->litter[i]);
        }
    }
    fake->litter_count = kept;
    leave(fake);
    return FCAP_OK;
}

/* --- locks --- */

static enum fcap_status lock(struct fcap_objects *port, const char *prefix, const char *holder,
                             struct fcap_object_lock **ret_lock, struct fcap_error *error)
{
    struct fake_objects *fake = fake_of(port);
    FCAP_ASSERT(is_prefix(prefix));
    enum fcap_status status = start(fake, FAKE_OBJECTS_LOCK, prefix, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_object_lock *own = calloc(1, sizeof *own);
    FCAP_ASSERT(own != NULL);
    memcpy(own->prefix, prefix, strlen(prefix) + 1);
    size_t size = strlen(holder) < sizeof own->holder ? strlen(holder) : sizeof own->holder - 1;
    memcpy(own->holder, holder, size);
    enter(fake);
    const struct fcap_object_lock *other = fake->locks;
    while (other != NULL && strcmp(other->prefix, prefix) != 0) {
        other = other->next;
    }
    if (other != NULL) {
        status = fcap_error_set(error, FCAP_LOCKED, "%s: held by %s", prefix, other->holder);
        free(own);
    } else {
        own->next = fake->locks;
        fake->locks = own;
        *ret_lock = own;
    }
    leave(fake);
    return status;
}

static void unlock(struct fcap_objects *port, struct fcap_object_lock *own)
{
    struct fake_objects *fake = fake_of(port);
    if (own == NULL) {
        return;
    }
    enter(fake);
    struct fcap_object_lock **at = &fake->locks;
    while (*at != own) {
        FCAP_ASSERT(*at != NULL); /* One that was given back before. */
        at = &(*at)->next;
    }
    *at = own->next;
    leave(fake);
    free(own);
}

/* --- knobs --- */

void fake_objects_init(struct fake_objects *fake)
{
    static const struct fcap_objects_ops ops = {.begin = begin,
                                                .write = write_bytes,
                                                .finish = finish,
                                                .abandon = abandon,
                                                .read = read_bytes,
                                                .list = list,
                                                .remove = remove_object,
                                                .sweep = sweep,
                                                .lock = lock,
                                                .unlock = unlock};
    *fake = (struct fake_objects){.port = {&ops}};
    FCAP_ASSERT(pthread_mutex_init(&fake->mutex, NULL) == 0);
}

void fake_objects_done(struct fake_objects *fake)
{
    fake_objects_crash(fake);
    while (fake->count > 0) {
        take_away(fake, &fake->objects[fake->count - 1]);
    }
    free(fake->objects);
    free(fake->litter);
    (void)pthread_mutex_destroy(&fake->mutex); /* Nobody holds it. */
    *fake = (struct fake_objects){0};
}

void fake_objects_fail(struct fake_objects *fake, enum fake_objects_call call, uint64_t n,
                       enum fcap_status status)
{
    enter(fake);
    fake->plans[call] = (struct fake_objects_plan){n, status};
    leave(fake);
}

void fake_objects_away(struct fake_objects *fake, enum fcap_status status)
{
    enter(fake);
    fake->away = status;
    leave(fake);
}

void fake_objects_fail_late(struct fake_objects *fake, enum fcap_status status)
{
    enter(fake);
    fake->late = status;
    leave(fake);
}

void fake_objects_limit(struct fake_objects *fake, uint64_t bytes_max)
{
    enter(fake);
    fake->bytes_max = bytes_max;
    leave(fake);
}

void fake_objects_watch(struct fake_objects *fake, fake_objects_hook hook, void *context)
{
    enter(fake);
    fake->hook = hook;
    fake->hook_context = context;
    leave(fake);
}

void fake_objects_crash(struct fake_objects *fake)
{
    enter(fake);
    while (fake->writers != NULL) {
        struct fcap_object_writer *writer = fake->writers;
        fake->litter = realloc(fake->litter, (fake->litter_count + 1) * sizeof *fake->litter);
        FCAP_ASSERT(fake->litter != NULL);
        memcpy(fake->litter[fake->litter_count++], writer->name, sizeof writer->name);
        detach(fake, writer);
        fcap_buffer_done(&writer->bytes);
        free(writer);
    }
    while (fake->locks != NULL) {
        struct fcap_object_lock *own = fake->locks;
        fake->locks = own->next;
        free(own);
    }
    leave(fake);
}

void fake_objects_cut(struct fake_objects *fake, const char *name, uint64_t size)
{
    enter(fake);
    struct fake_object *object = find(fake, name);
    FCAP_ASSERT(object != NULL && size <= object->bytes.size);
    fake->bytes -= object->bytes.size - size;
    object->bytes.size = (size_t)size;
    leave(fake);
}

void fake_objects_flip(struct fake_objects *fake, const char *name, uint64_t bit)
{
    enter(fake);
    struct fake_object *object = find(fake, name);
    FCAP_ASSERT(object != NULL && bit / 8 < object->bytes.size);
    object->bytes.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    leave(fake);
}

void fake_objects_lose(struct fake_objects *fake, const char *name)
{
    enter(fake);
    struct fake_object *object = find(fake, name);
    FCAP_ASSERT(object != NULL);
    take_away(fake, object);
    leave(fake);
}

uint64_t fake_objects_calls(struct fake_objects *fake, enum fake_objects_call call)
{
    enter(fake);
    uint64_t calls = fake->calls[call];
    leave(fake);
    return calls;
}

uint64_t fake_objects_bytes(struct fake_objects *fake)
{
    enter(fake);
    uint64_t bytes = fake->bytes;
    leave(fake);
    return bytes;
}

size_t fake_objects_litter(struct fake_objects *fake)
{
    enter(fake);
    size_t count = fake->litter_count;
    leave(fake);
    return count;
}
