/* The port to the place where checkpoints are kept: named objects, each written once, as a whole,
 * and never changed after that. A directory on a mounted volume today (objects_directory.c); an
 * object store is one more file.
 *
 * Names are relative paths of [A-Za-z0-9._-] parts with '/' between them ("days/pod-0/..."), at
 * most FCAP_OBJECT_NAME_MAX bytes; no part begins with '.', and what is one object's name is no
 * part of another's path. What must hold: an object is there whole or not at all, whatever ends the
 * process or the machine; two writers never make one name; what was finished is durable. Failures
 * are told in `error` (may be NULL) with the object's place and the system's words.
 *
 * UNAVAILABLE and NO_SPACE: the place is away or full, try again later; IO: it fails in some other
 * way, and may be well again later, too: callers keep trying, and nobody exits for it. A call takes
 * as long as the volume does, which may be for ever.
 *
 * Thread rule: any number of threads at once; one writer or lock belongs to one thread at a time.
 */
#ifndef FCAP_OBJECTS_H
#define FCAP_OBJECTS_H

#include "fcap/bytes.h"
#include "fcap/status.h"

#define FCAP_OBJECT_NAME_MAX 255
#define FCAP_OBJECT_PATH_MAX 4096 /* of locate(), with NUL */

/* Every call below wants such a name, or dies. */
bool fcap_object_name_is_valid(const char *name);

/* An object that is being written. */
struct fcap_object_writer;

/* Held until unlock(), or until the process ends, however it ends. */
struct fcap_object_lock;

/* Gets one object's name and size in bytes; returns false to stop. Valid during the call. */
typedef bool (*fcap_object_visitor)(void *context, const char *name, uint64_t size);

struct fcap_objects;
struct fcap_objects_ops {
    /* Starts an object. Nobody sees it before finish(); if the process ends first, nobody ever
     * does, and its remains go away with the next sweep(). */
    enum fcap_status (*begin)(struct fcap_objects *objects, const char *name,
                              struct fcap_object_writer **ret_writer, struct fcap_error *error);
    /* Appends. After a failure only abandon() is left. */
    enum fcap_status (*write)(struct fcap_objects *objects, struct fcap_object_writer *writer,
                              struct fcap_bytes bytes, struct fcap_error *error);
    /* Makes it durable and visible. LOCKED: the name exists already, made by somebody else.
     * Whatever is returned, the writer is gone; when it is not OK, the object may have become
     * visible all the same (a failure after the last step) and is whole then. */
    enum fcap_status (*finish)(struct fcap_objects *objects, struct fcap_object_writer *writer,
                               struct fcap_error *error);
    /* Gives it up. NULL is fine. */
    void (*abandon)(struct fcap_objects *objects, struct fcap_object_writer *writer);
    /* Up to `size` bytes from `offset` on; fewer only at the end. REFUSED: there is none. */
    enum fcap_status (*read)(struct fcap_objects *objects, const char *name, uint64_t offset,
                             uint8_t *data, size_t size, size_t *ret_size,
                             struct fcap_error *error);
    /* All objects whose name starts with `prefix`, by name in byte order. The visitor may make any
     * call. */
    enum fcap_status (*list)(struct fcap_objects *objects, const char *prefix,
                             fcap_object_visitor visitor, void *context, struct fcap_error *error);
    /* OK also when there is none. When the machine ends, it may be there again. */
    enum fcap_status (*remove)(struct fcap_objects *objects, const char *name,
                               struct fcap_error *error);
    /* Removes what writers have left behind below `prefix` ("" or a name with a '/' behind it);
     * call it under the lock of the one who writes there, before begin(). */
    enum fcap_status (*sweep)(struct fcap_objects *objects, const char *prefix,
                              struct fcap_error *error);
    /* Exclusive, for `prefix` (as above). LOCKED: the error names the holder, as `holder` told it.
     * A lock that is lost although its process lives (another volume in the old one's place) is
     * taken anew by what changes something below it: begin(), finish(), remove(), sweep(); these
     * give LOCKED when somebody else has it. */
    enum fcap_status (*lock)(struct fcap_objects *objects, const char *prefix, const char *holder,
                             struct fcap_object_lock **ret_lock, struct fcap_error *error);
    /* NULL is fine. */
    void (*unlock)(struct fcap_objects *objects, struct fcap_object_lock *lock);
    /* Where the object lies as a file that this machine can open: it may be read there until it is
     * removed, and nothing else. False: in no such place, or it is away. The object need not be
     * there. NULL: never. */
    bool (*locate)(struct fcap_objects *objects, const char *name,
                   char ret_path[FCAP_OBJECT_PATH_MAX]);
};
struct fcap_objects {
    const struct fcap_objects_ops *ops;
};

/* Objects as files below `directory`, which is made, with its parents, when it is missing. Borrows
 * nothing. The caller gives it back to fcap_objects_directory_close(). FOREIGN: the directory holds
 * something else; FORMAT: the layout of another version. A volume that is not mounted must not be
 * mistaken for an empty one: with `must_exist` a directory without its mark is UNAVAILABLE; and so
 * is, in every call, one whose mark is gone or another than at the opening. Nothing is held open
 * but objects that are being written and locks, so that all goes on when the volume is mounted
 * again. */
enum fcap_status fcap_objects_directory_open(const char *directory, bool must_exist,
                                             struct fcap_objects **ret_objects,
                                             struct fcap_error *error) FCAP_MUST_USE;

/* The same for a place that was used before: UNAVAILABLE also when its mark has another id. */
enum fcap_status fcap_objects_directory_open_known(const char *directory, const char *id,
                                                   struct fcap_objects **ret_objects,
                                                   struct fcap_error *error) FCAP_MUST_USE;

/* The id of its mark, 32 digits, by which one place is told from another. Valid until close. */
#define FCAP_OBJECTS_ID_DIGITS 32
const char *fcap_objects_directory_id(const struct fcap_objects *objects);

/* Writers and locks must have been given back. NULL is fine. */
void fcap_objects_directory_close(struct fcap_objects *objects);

#endif
