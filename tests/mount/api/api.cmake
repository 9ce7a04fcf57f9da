# The C API.
rampfs_mount_program(api_user api/api_user.c)
target_link_libraries(api_user PRIVATE ramp)
rampfs_script_test(NAME api COMMAND tests/mount/api/api.sh TIMEOUT 300)

# Moves in steps.
rampfs_mount_program(steps_user api/steps_user.c)
target_link_libraries(steps_user PRIVATE ramp)
rampfs_script_test(NAME api_steps COMMAND tests/mount/api/steps.sh TIMEOUT 300)
rampfs_mount_program(container_user api/container_user.cpp)
target_link_libraries(container_user PRIVATE ramp)
rampfs_script_test(NAME containers_move COMMAND tests/mount/api/containers.sh TIMEOUT 300)

# Segments allocated in one commit.
rampfs_mount_program(alloc_user api/alloc_user.c)
target_link_libraries(alloc_user PRIVATE ramp)
rampfs_script_test(NAME api_alloc COMMAND tests/mount/api/alloc.sh TIMEOUT 300)

# What goes wrong around programs of the C API.
rampfs_mount_program(bad_user api/bad_user.c)
target_link_libraries(bad_user PRIVATE ramp)
rampfs_script_test(NAME api_bad COMMAND tests/mount/api/bad.sh TIMEOUT 300)
rampfs_mount_program(depart_user api/depart_user.c)
target_link_libraries(depart_user PRIVATE ramp)
rampfs_script_test(NAME api_depart COMMAND tests/mount/api/depart.sh TIMEOUT 300)
