rampfs_script_test(NAME held COMMAND tests/mount/held.sh TIMEOUT 300)
# While it holds its processes nothing moves on this machine, not in other tests either.
set_tests_properties(held PROPERTIES RUN_SERIAL TRUE)
rampfs_script_test(NAME locked COMMAND tests/mount/locked.sh TIMEOUT 300)
