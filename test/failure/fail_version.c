/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: UCX that calls itself 1.99.0. */
void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
const char *ucp_get_version_string(void);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major   = 1;
    *minor   = 99;
    *release = 0;
}

const char *ucp_get_version_string(void)
{
    return "1.99.0";
}
