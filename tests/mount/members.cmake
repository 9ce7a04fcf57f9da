rampfs_script_test(NAME members COMMAND tests/mount/members.sh TIMEOUT 300)
