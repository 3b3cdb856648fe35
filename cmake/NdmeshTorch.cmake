# Finds the torch wheel to build with: NDMESH_TORCH is its folder `torch`. ndmesh_use_torch(TARGET) gives a target libtorch and
# the precompiled header.

if(NOT NDMESH_TORCH)
  file(GLOB installed ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(installed)
    list(GET installed 0 installed)
  endif()
  set(NDMESH_TORCH "${installed}" CACHE PATH "Folder `torch` of an installed torch wheel" FORCE)
endif()
if(NOT EXISTS ${NDMESH_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "NDMESH_TORCH=${NDMESH_TORCH} holds no lib/libtorch_cpu.so. Run ./quickstart, which installs "
                      "torch into .venv, or give the folder `torch` of an installed wheel: -DNDMESH_TORCH=FOLDER.")
endif()

include(NdmeshLibtorch)
ndmesh_add_libtorch(${NDMESH_TORCH})
if(NDMESH_CUDA)
  ndmesh_add_libtorch_cuda(${NDMESH_TORCH})
endif()

# Parsing libtorch's headers costs 10 to 20 s a file: they are precompiled once, here, and reused everywhere.
add_library(ndmesh_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
target_link_libraries(ndmesh_pch PUBLIC ndmesh_options ndmesh::libtorch Threads::Threads)
target_precompile_headers(ndmesh_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.h)

function(ndmesh_use_torch target)
  target_link_libraries(${target} PUBLIC ndmesh::libtorch)
  target_precompile_headers(${target} REUSE_FROM ndmesh_pch)
endfunction()
