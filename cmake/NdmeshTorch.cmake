# The libtorch inside an installed torch wheel (CPU or CUDA), without the wheel's own CMake package: that one
# asks for a CUDA toolkit. NDMESH_TORCH is the folder `torch` of the wheel.

if(NOT NDMESH_TORCH)
  file(GLOB installed ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(GET installed 0 installed)  # empty stays empty
  set(NDMESH_TORCH "${installed}" CACHE PATH "Folder `torch` of an installed torch wheel" FORCE)
endif()
if(NOT EXISTS ${NDMESH_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "NDMESH_TORCH=${NDMESH_TORCH} holds no lib/libtorch_cpu.so. Run ./quickstart, which installs "
                      "torch into .venv, or give the folder `torch` of an installed wheel: -DNDMESH_TORCH=FOLDER.")
endif()

add_library(ndmesh_libtorch INTERFACE)
# -idirafter, not -isystem: the wheel carries its own fmt, which must not hide the system's.
target_compile_options(ndmesh_libtorch INTERFACE "SHELL:-idirafter ${NDMESH_TORCH}/include"
                       "SHELL:-idirafter ${NDMESH_TORCH}/include/torch/csrc/api/include")
target_link_libraries(ndmesh_libtorch INTERFACE ${NDMESH_TORCH}/lib/libtorch.so ${NDMESH_TORCH}/lib/libtorch_cpu.so
                      ${NDMESH_TORCH}/lib/libc10.so)

# Parsing libtorch's headers costs 10 to 20 s a file: they are precompiled once, here, and reused everywhere.
add_library(ndmesh_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
target_link_libraries(ndmesh_pch PUBLIC ndmesh_options ndmesh_libtorch Threads::Threads)
target_precompile_headers(ndmesh_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.h)

function(ndmesh_use_torch target)
  target_link_libraries(${target} PUBLIC ndmesh_libtorch)
  target_precompile_headers(${target} REUSE_FROM ndmesh_pch)
endfunction()
