# Hostile users, programs and hosts.
rampfs_script_test(NAME attack COMMAND tests/mount/hostile/attack.sh TIMEOUT 600)
rampfs_script_test(NAME held COMMAND tests/mount/hostile/held.sh TIMEOUT 300)
# While this test holds its processes no segment moves on this machine, in other tests either.
set_tests_properties(held PROPERTIES RUN_SERIAL TRUE)
rampfs_script_test(NAME locked COMMAND tests/mount/hostile/locked.sh TIMEOUT 300)
