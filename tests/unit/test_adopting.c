/* Between source and pipeline: a partition is held back while its state is looked for, others go
 * on.
 */
#include "fcap/adopter.h"

#include "lib/fake_source.h"
#include "lib/fake_store.h"
#include "lib/source_recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "adopter_world.h"

/* --- between source and pipeline ----------------------------------------------------------------
 */

enum { OTHER = 0 };

static struct front {
    struct fake_topic topic;
    struct fake_source source;
    struct fake_store *disk;
    struct fcap_store *store;
    struct fcap_adopting *adopting;
    struct recorder recorder;
} front;

static enum fcap_status look_any(struct fcap_adopt_state *state, int32_t partition,
                                 struct fcap_store_partition *ret_here, struct fcap_error *error)
{
    (void)state;
    (void)partition;
    (void)error;
    *ret_here = (struct fcap_store_partition){.found = false};
    return FCAP_OK;
}

static int set_up_front(void **unused)
{
    static const struct fcap_adopt_state_ops ops = {look_any, state_take, state_rest};
    (void)set_up(unused);
    world.state.ops = &ops;
    fake_topic_init(&front.topic, PARTITION + 1);
    fake_source_init(&front.source, &front.topic);
    front.disk = fake_store_open(NULL);
    front.store = fake_store_handle(front.disk);
    front.adopting = fcap_adopting_open(&front.source.port, front.store, world.adopter);
    recorder_init(&front.recorder, (struct fcap_start){.kind = FCAP_START_EARLIEST});
    for (int32_t partition = 0; partition <= PARTITION; partition++) {
        for (int i = 0; i < 10; i++) {
            (void)fake_topic_append(&front.topic, partition, fcap_bytes_of("k"), fcap_bytes_of("v"),
                                    NOW_MS + i, FCAP_TIMESTAMP_CREATE);
        }
    }
    return 0;
}

static int tear_down_front(void **unused)
{
    fcap_adopting_close(front.adopting);
    fake_store_close(front.disk);
    fake_source_done(&front.source);
    fake_topic_done(&front.topic);
    return tear_down(unused);
}

static void poll_front(void)
{
    struct fcap_source *port = fcap_adopting_port(front.adopting);
    const struct fcap_source_budget budget = {.records_max = 1000};
    assert_int_equal(port->ops->poll(port, &front.recorder.handler, budget), FCAP_OK);
    if (front.recorder.violations > 0) {
        fail_msg("%s", front.recorder.violation);
    }
}

/* What is written under this number is refused. */
static bool is_fenced(uint64_t assignment)
{
    struct fcap_batch batch = {0};
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_OK;
    uint64_t refused = fake_store_counts(front.disk).sections_refused;
    fcap_batch_section(&batch, PARTITION, assignment, 1);
    fcap_batch_add(&batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_bytes_of("x"),
                   fcap_bytes_of("y"));
    assert_int_equal(front.store->ops->submit(front.store, &batch), FCAP_OK);
    while (done == NULL) {
        assert_int_equal(front.store->ops->completed(front.store, 0, &done, &result), FCAP_OK);
    }
    fcap_batch_done(&batch);
    return fake_store_counts(front.disk).sections_refused > refused;
}

static void a_partition_is_held_back_and_others_go_on(void **unused)
{
    (void)unused;
    fake_source_assign(&front.source, PARTITION);
    fake_source_assign(&front.source, OTHER);
    poll_front();
    assert_int_equal(fcap_adopting_count(front.adopting), 2);
    assert_int_equal(front.recorder.records, 0);
    assert_true(fcap_adopter_step(world.adopter)); /* In the order in which they came. */
    poll_front();
    poll_front();
    assert_int_equal(front.recorder.partitions[PARTITION].records, 10);
    assert_int_equal(front.recorder.partitions[OTHER].assigned_count, 0);
    assert_int_equal(fcap_adopting_count(front.adopting), 1);
    assert_true(fcap_adopter_step(world.adopter));
    poll_front();
    poll_front();
    assert_int_equal(front.recorder.partitions[OTHER].records, 10);
    assert_int_equal(fcap_adopting_count(front.adopting), 0);
    fake_source_revoke(&front.source, OTHER, false);
    fake_source_revoke(&front.source, PARTITION, false);
    poll_front();
    assert_int_equal(recorder_owned(&front.recorder), 0);
}

/* Until it is over the adopter may write, then the pipeline alone. */
static void the_claims_follow_on_each_other(void **unused)
{
    (void)unused;
    int64_t dropped_ms = 0;
    fake_source_assign(&front.source, PARTITION);
    poll_front();
    const uint64_t assignment = front.topic.assignments;
    assert_false(is_fenced(assignment - 1));
    assert_true(is_fenced(assignment));
    assert_true(fcap_adopter_step(world.adopter));
    poll_front();
    assert_int_equal(front.recorder.partitions[PARTITION].assignment, assignment);
    /* As the pipeline does in assigned(). */
    assert_int_equal(front.store->ops->claim(front.store, PARTITION, assignment, &dropped_ms),
                     FCAP_OK);
    assert_true(is_fenced(assignment - 1));
    assert_false(is_fenced(assignment));
    fake_source_revoke(&front.source, PARTITION, false);
    poll_front();
}

static void a_partition_that_leaves_is_given_up(void **unused)
{
    (void)unused;
    for (int lost = 0; lost < 2; lost++) {
        fake_source_assign(&front.source, PARTITION);
        fake_source_assign(&front.source, OTHER);
        poll_front();
        const uint64_t assignment = front.topic.assignments - 2;
        fake_source_revoke(&front.source, PARTITION, lost == 1);
        poll_front();
        assert_int_equal(fcap_adopting_count(front.adopting), 1);
        assert_true(is_fenced(assignment - 1));
        assert_int_equal(front.recorder.partitions[PARTITION].assigned_count, 0);
        assert_int_equal(front.recorder.partitions[PARTITION].revoked_count, 0);
        assert_true(fcap_adopter_step(world.adopter)); /* The other one's. */
        poll_front();
        poll_front();
        fake_source_revoke(&front.source, OTHER, lost == 1);
        poll_front();
        assert_int_equal(front.recorder.partitions[OTHER].revoked_count, lost + 1);
        assert_int_equal(metrics().cancelled, lost + 1);
    }
}

int main(void)
{
#define FRONT(function) cmocka_unit_test_setup_teardown(function, set_up_front, tear_down_front)
    const struct CMUnitTest tests[] = {
        FRONT(a_partition_is_held_back_and_others_go_on),
        FRONT(the_claims_follow_on_each_other),
        FRONT(a_partition_that_leaves_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
