# Members, metadata, and the limits of both.
rampfs_script_test(NAME members COMMAND tests/mount/members/members.sh TIMEOUT 300)
rampfs_script_test(NAME limits COMMAND tests/mount/members/limits.sh TIMEOUT 200)
rampfs_script_test(NAME metadata COMMAND tests/mount/members/metadata.sh TIMEOUT 300)
rampfs_script_test(NAME newcomers COMMAND tests/mount/members/newcomers.sh TIMEOUT 200)
rampfs_script_test(NAME again COMMAND tests/mount/members/again.sh TIMEOUT 200)
foreach(part three five backup addresses)
  rampfs_script_test(NAME recover_${part} COMMAND tests/mount/members/recover.sh ${part} TIMEOUT 200)
endforeach()
