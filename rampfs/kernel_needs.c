#include "kernel_needs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/kernel.h"

#define KERNEL_NEEDED 607 /* Linux 6.7 */
#define OS_RELEASE    "/etc/os-release"

/* Whether the distribution is Debian 12, whose own kernel is too old. */
static bool on_bookworm(void)
{
	FILE *f = fopen(OS_RELEASE, "re");
	char line[256];
	bool is = false;

	while (f && !is && fgets(line, sizeof(line), f))
		is = strcmp(line, "VERSION_CODENAME=bookworm\n") == 0;
	if (f)
		fclose(f);
	return is;
}

int kernel_needs(struct ramp_err *err)
{
	struct utsname name;
	const char *package = "";
	int version = kernel_version();

	/* 0: the kernel's number makes no sense; what is missing shows itself then. */
	if (version == 0 || version >= KERNEL_NEEDED || uname(&name))
		return 0;
	if (on_bookworm())
		package = " (package linux-image-6.12-amd64 of bookworm-backports)";
	return ramp_err_set(err, ENOSYS,
			    "Linux %.32s lacks PAGEMAP_SCAN and userfaultfd's asynchronous write "
			    "protection: Linux 6.7 or later is needed%s",
			    name.release, package);
}
