# Failing calls, one by one. The suite takes the calls at which something was wrong once, and an even
# sample of the others; tests/inject/inject.sh --all takes every call.
add_library(inject MODULE ${CMAKE_CURRENT_LIST_DIR}/inject.c)
set_target_properties(inject PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests C_VISIBILITY_PRESET hidden)
target_compile_options(inject PRIVATE -Wall -Wextra $<$<BOOL:${RAMPFS_WERROR}>:-Werror> -O2)
target_compile_definitions(inject PRIVATE _GNU_SOURCE)
target_link_libraries(inject PRIVATE ${CMAKE_DL_LIBS})
# A foreign program: not sanitized, the shim is loaded into it.
add_executable(stores ${CMAKE_CURRENT_LIST_DIR}/stores.c)
set_target_properties(stores PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(stores PRIVATE rampfs_flags Threads::Threads)
rampfs_script_test(NAME inject COMMAND tests/inject/inject.sh --seconds 15 TIMEOUT 600)
# A kill at each step of a revoke.
add_library(steps MODULE ${CMAKE_CURRENT_LIST_DIR}/steps.c)
set_target_properties(steps PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests C_VISIBILITY_PRESET hidden)
target_include_directories(steps PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
target_compile_options(steps PRIVATE -Wall -Wextra $<$<BOOL:${RAMPFS_WERROR}>:-Werror> -O2)
target_compile_definitions(steps PRIVATE _GNU_SOURCE)
target_link_libraries(steps PRIVATE ${CMAKE_DL_LIBS})
rampfs_script_test(NAME revoke_steps COMMAND tests/inject/steps.sh TIMEOUT 300)
