# The C API.
rampfs_mount_program(api_user api/api_user.c)
target_link_libraries(api_user PRIVATE ramp)
rampfs_script_test(NAME api COMMAND tests/mount/api/api.sh TIMEOUT 300)
