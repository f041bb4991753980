/* Fixed-seed random numbers (xorshift128+, Vigna 2014) and Zipf by rejection-inversion (Hoermann
 * and Derflinger 1996). */
#include "engine.h"

#include <math.h>

static uint64_t random_state[2];

void random_begin(void)
{
    random_state[0] = 0x123456789abcdefull;
    random_state[1] = 0xfedcba987654321ull;
}

uint64_t random_next(void)
{
    uint64_t a = random_state[0];
    uint64_t b = random_state[1];
    random_state[0] = b;
    a ^= a << 23;
    random_state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return random_state[1] + b;
}

double random_unit(void)
{
    return (double)(random_next() >> 11) / 9007199254740992.0;
}

static double h_integral(double x, double s)
{
    double log_x = log(x);
    double t = (1 - s) * log_x;
    return fabs(t) > 1e-8 ? expm1(t) / (1 - s) : log_x * (1 + t / 2);
}

static double h_inverse(double x, double s)
{
    double t = x * (1 - s);
    return fabs(t) > 1e-8 ? exp(log1p(t) / (1 - s)) : exp(x * (1 - t / 2));
}

void zipf_init(struct zipf *zipf, double n, double s)
{
    zipf->n = n;
    zipf->s = s;
    zipf->h_x1 = h_integral(1.5, s) - 1;
    zipf->h_n = h_integral(n + 0.5, s);
    zipf->bound = 2 - h_inverse(h_integral(2.5, s) - pow(2, -s), s);
}

uint64_t zipf_next(const struct zipf *zipf)
{
    for (;;) {
        double u = zipf->h_n + random_unit() * (zipf->h_x1 - zipf->h_n);
        double x = h_inverse(u, zipf->s);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > zipf->n ? zipf->n : k;
        if (k - x <= zipf->bound || u >= h_integral(k + 0.5, zipf->s) - pow(k, -zipf->s)) {
            return (uint64_t)k - 1;
        }
    }
}

uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ value >> 33;
}
