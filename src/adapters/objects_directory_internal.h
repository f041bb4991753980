/* What the files of the directory of objects share. Thread rule: as fcap/objects.h. */
#ifndef FCAP_OBJECTS_DIRECTORY_INTERNAL_H
#define FCAP_OBJECTS_DIRECTORY_INTERNAL_H

#include "fcap/objects.h"

#include <pthread.h>

/* Hidden names, which no object has. */
#define OBJECTS_MARK     ".fcap-objects"
#define OBJECTS_LOCK     ".lock"
#define OBJECTS_NEW      ".new-"  /* an object that is being written */
#define OBJECTS_NEW_MARK ".mark-" /* a mark that is being made */

enum {
    OBJECTS_ID_DIGITS = FCAP_OBJECTS_ID_DIGITS, /* of a mark */
    OBJECTS_TEMPORARY_MAX = 32 /* bytes of the name of what is being written, with NUL */
};

/* What a writer could not take away with it, because the place was away. */
struct objects_litter {
    struct objects_litter *next;
    char name[FCAP_OBJECT_NAME_MAX + 1]; /* of the object that it was to become */
    char temporary[OBJECTS_TEMPORARY_MAX];
};

struct objects_directory {
    struct fcap_objects port; /* first */
    char *path;
    char id[OBJECTS_ID_DIGITS + 1]; /* of the mark at the opening; "": not read yet */
    pthread_mutex_t mutex;          /* guards the lists, and which file each lock holds */
    struct fcap_object_lock *locks;
    struct objects_litter *litter;
};

static inline struct objects_directory *objects_directory_of(struct fcap_objects *port)
{
    return (struct objects_directory *)port;
}

/* --- objects_directory_place.c: folders, the mark, and words for what fails --- */

/* Tells what failed with `code` (an errno), and the cure. `name`: below the directory; "": itself.
 */
enum fcap_status objects_fail(const struct objects_directory *directory, const char *name,
                              const char *what, int code, struct fcap_error *error);

/* Opens the directory and sees that its mark is the one of the opening. Everything else starts from
 * this descriptor, so that no call spans two volumes. */
enum fcap_status objects_root(const struct objects_directory *directory, int *ret_root,
                              struct fcap_error *error);

enum objects_folder_way {
    OBJECTS_FOLDER_FIND, /* none: ENOENT or ENOTDIR */
    OBJECTS_FOLDER_MAKE, /* makes what is missing */
    OBJECTS_FOLDER_SYNC, /* makes each on the way durable, with the names in it */
};

/* Opens the folder in which `name` lies; -1: errno. *ret_last is the last part of `name`. Never
 * leaves the root: no part may be a symbolic link. */
int objects_folder(int root, const char *name, enum objects_folder_way way, const char **ret_last);

/* fsync; true also where the file system has none for directories. */
bool objects_sync_folder(int folder);

/* A file of a new name that begins with `start`; -1: errno. */
int objects_make_temporary(int folder, const char *start, char ret_name[OBJECTS_TEMPORARY_MAX]);

/* Gives a file its final name, which nobody has yet; `file` is its descriptor. EEXIST: somebody
 * has. The temporary name is gone then, and with 0. Gives an errno. */
int objects_appear(int folder, int file, const char *temporary, const char *last);

/* Reads the mark, or makes it where there is none and it may be made. Sets the id. */
enum fcap_status objects_open_mark(struct objects_directory *directory, bool must_exist,
                                   struct fcap_error *error);

/* --- objects_directory_lock.c --- */

enum fcap_status objects_lock(struct fcap_objects *port, const char *prefix, const char *holder,
                              struct fcap_object_lock **ret_lock, struct fcap_error *error);
void objects_unlock(struct fcap_objects *port, struct fcap_object_lock *lock);

/* Sees that the locks held on prefixes of `name`, and below it, still stand; takes lost ones anew.
 */
enum fcap_status objects_locks_stand(struct objects_directory *directory, int root,
                                     const char *name, struct fcap_error *error);

#endif
