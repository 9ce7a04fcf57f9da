rampfs_script_test(NAME members COMMAND tests/mount/members.sh TIMEOUT 300)
rampfs_script_test(NAME limits COMMAND tests/mount/limits.sh TIMEOUT 200)
rampfs_script_test(NAME metadata COMMAND tests/mount/metadata.sh TIMEOUT 300)
rampfs_script_test(NAME newcomers COMMAND tests/mount/newcomers.sh TIMEOUT 200)
