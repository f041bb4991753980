/* C11 threads on pthreads, for ThreadSanitizer builds only. TSan sees pthread_* and knows nothing
 * of glibc's thrd_*, mtx_* and cnd_*, which go around them: threads that librdkafka starts would be
 * strangers to it (their first instrumented call dies) and what its locks order would look like
 * races. An executable's own symbols win over libc's, also for the shared libraries in it.
 *
 * glibc's C11 types are its pthread types under other names (same layout, checked below), so both
 * kinds may even meet on one object. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "mtx_t is a pthread_mutex_t");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "cnd_t is a pthread_cond_t");
_Static_assert(sizeof(thrd_t) == sizeof(pthread_t), "thrd_t is a pthread_t");
_Static_assert(sizeof(tss_t) == sizeof(pthread_key_t), "tss_t is a pthread_key_t");
_Static_assert(sizeof(once_flag) == sizeof(pthread_once_t), "once_flag is a pthread_once_t");

static int result_of(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case ENOMEM:
        return thrd_nomem;
    case ETIMEDOUT:
        return thrd_timedout;
    case EBUSY:
        return thrd_busy;
    default:
        return thrd_error;
    }
}

/* librdkafka's objects begin and end by counting references with atomics that TSan cannot see, and
 * locks lie in them. So the looks that TSan takes at a lock's own bytes are left out; what the lock
 * orders is not. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void look_away(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static int look_again(int result)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    return result;
}

/* --- threads --------------------------------------------------------------------------------- */

struct start {
    thrd_start_t function;
    void *argument;
};

static void *run(void *context)
{
    struct start start = *(struct start *)context;
    free(context);
    return (void *)(intptr_t)start.function(start.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (start == NULL) {
        return thrd_nomem;
    }
    *start = (struct start){function, argument};
    int error = pthread_create(thread, NULL, run, start);
    if (error != 0) {
        free(start);
        return error == EAGAIN ? thrd_nomem : result_of(error);
    }
    return thrd_success;
}

int thrd_join(thrd_t thread, int *ret_result)
{
    void *value = NULL;
    int error = pthread_join(thread, &value);
    if (error == 0 && ret_result != NULL) {
        *ret_result = (int)(intptr_t)value;
    }
    return result_of(error);
}

int thrd_detach(thrd_t thread)
{
    return result_of(pthread_detach(thread));
}

_Noreturn void thrd_exit(int result)
{
    pthread_exit((void *)(intptr_t)result);
}

/* --- mutexes --------------------------------------------------------------------------------- */

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (error == 0) {
        int kind = (type & mtx_recursive) != 0 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL;
        error = pthread_mutexattr_settype(&attributes, kind);
        if (error == 0) {
            look_away();
            error = look_again(pthread_mutex_init((pthread_mutex_t *)mutex, &attributes));
        }
        (void)pthread_mutexattr_destroy(&attributes); /* Frees nothing on Linux. */
    }
    return result_of(error);
}

void mtx_destroy(mtx_t *mutex)
{
    look_away();
    /* The C11 call tells nothing. */
    (void)look_again(pthread_mutex_destroy((pthread_mutex_t *)mutex));
}

int mtx_lock(mtx_t *mutex)
{
    look_away();
    return look_again(result_of(pthread_mutex_lock((pthread_mutex_t *)mutex)));
}

int mtx_trylock(mtx_t *mutex)
{
    look_away();
    return look_again(result_of(pthread_mutex_trylock((pthread_mutex_t *)mutex)));
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict deadline)
{
    look_away();
    return look_again(result_of(pthread_mutex_timedlock((pthread_mutex_t *)mutex, deadline)));
}

int mtx_unlock(mtx_t *mutex)
{
    look_away();
    return look_again(result_of(pthread_mutex_unlock((pthread_mutex_t *)mutex)));
}

/* --- conditions ------------------------------------------------------------------------------ */

int cnd_init(cnd_t *condition)
{
    look_away();
    return look_again(result_of(pthread_cond_init((pthread_cond_t *)condition, NULL)));
}

void cnd_destroy(cnd_t *condition)
{
    look_away();
    /* The C11 call tells nothing. */
    (void)look_again(pthread_cond_destroy((pthread_cond_t *)condition));
}

int cnd_signal(cnd_t *condition)
{
    look_away();
    return look_again(result_of(pthread_cond_signal((pthread_cond_t *)condition)));
}

int cnd_broadcast(cnd_t *condition)
{
    look_away();
    return look_again(result_of(pthread_cond_broadcast((pthread_cond_t *)condition)));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    look_away();
    return look_again(
        result_of(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex)));
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict deadline)
{
    look_away();
    return look_again(result_of(
        pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, deadline)));
}

/* --- once, thread-specific storage ------------------------------------------------------------ */

void call_once(once_flag *flag, void (*function)(void))
{
    (void)pthread_once((pthread_once_t *)flag, function); /* Never fails on Linux. */
}

int tss_create(tss_t *key, tss_dtor_t destructor)
{
    return result_of(pthread_key_create(key, destructor));
}

void tss_delete(tss_t key)
{
    (void)pthread_key_delete(key); /* The C11 call tells nothing. */
}

void *tss_get(tss_t key)
{
    return pthread_getspecific(key);
}

int tss_set(tss_t key, void *value)
{
    return result_of(pthread_setspecific(key, value));
}

/* --- read-write locks ------------------------------------------------------------------------- */

/* These TSan knows, but called from a library of libraries.supp they would not count, and
 * librdkafka hands objects over under them. Called from here they do. */
#define INTERCEPTED(name)                                                                          \
    int __interceptor_##name(pthread_rwlock_t *lock);                                              \
    int name(pthread_rwlock_t *lock)                                                               \
    {                                                                                              \
        look_away();                                                                               \
        return look_again(__interceptor_##name(lock));                                             \
    }

INTERCEPTED(pthread_rwlock_destroy)
INTERCEPTED(pthread_rwlock_rdlock)
INTERCEPTED(pthread_rwlock_tryrdlock)
INTERCEPTED(pthread_rwlock_wrlock)
INTERCEPTED(pthread_rwlock_trywrlock)
INTERCEPTED(pthread_rwlock_unlock)

int __interceptor_pthread_rwlock_init(pthread_rwlock_t *restrict lock,
                                      const pthread_rwlockattr_t *restrict attributes);

int pthread_rwlock_init(pthread_rwlock_t *restrict lock,
                        const pthread_rwlockattr_t *restrict attributes)
{
    look_away();
    return look_again(__interceptor_pthread_rwlock_init(lock, attributes));
}
