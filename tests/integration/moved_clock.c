#include "moved_clock.h"

#include "lab/lab.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

void moved_clock_open(struct moved_clock *clock, const char *name)
{
    char path[96];
    lab_folder_make(name, clock->folder, sizeof clock->folder);
    (void)snprintf(path, sizeof path, "%s/offset", clock->folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, sizeof *clock->offset_ms), 0);
    void *bytes = mmap(NULL, sizeof *clock->offset_ms, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(bytes != MAP_FAILED);
    (void)close(file);
    clock->offset_ms = bytes;
    (void)snprintf(clock->variable, sizeof clock->variable, "FCAP_TEST_CLOCK=%s", path);
}

void moved_clock_set(struct moved_clock *clock, int64_t offset_ms)
{
    __atomic_store_n(clock->offset_ms, offset_ms, __ATOMIC_RELEASE);
}

void moved_clock_close(struct moved_clock *clock)
{
    (void)munmap(clock->offset_ms, sizeof *clock->offset_ms);
    lab_folder_remove(clock->folder);
}
