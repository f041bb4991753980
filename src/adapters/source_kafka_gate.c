#include "source_kafka_internal.h"

/* Why the gate: a process that was stopped for longer than its session (SIGSTOP, a paused virtual
 * machine) wakes up believing that it owns its partitions. The library reports the loss 1 to 2 ms
 * after its first poll, so the first polls after a long gap prove nothing. One heartbeat interval
 * with the main queue served does: by then the library has seen its session end or has asked the
 * coordinator. */

void kafka_gate_init(struct kafka_gate *gate, int64_t session_ms, int64_t heartbeat_ms)
{
    *gate = (struct kafka_gate){
        .session_ms = session_ms, .heartbeat_ms = heartbeat_ms, .polled_ms = -1};
}

void kafka_gate_polled(struct kafka_gate *gate, int64_t now_ms)
{
    if (gate->polled_ms >= 0 && now_ms - gate->polled_ms >= gate->session_ms) {
        gate->trusted_ms = now_ms + gate->heartbeat_ms;
    }
    gate->polled_ms = now_ms;
}

bool kafka_gate_open(const struct kafka_gate *gate, int64_t now_ms)
{
    return gate->polled_ms >= 0 && now_ms - gate->polled_ms < gate->session_ms &&
           gate->polled_ms >= gate->trusted_ms;
}
