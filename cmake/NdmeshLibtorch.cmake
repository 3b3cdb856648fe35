# Part of the build and of the installed package: libtorch out of an installed torch wheel (CPU or CUDA), without the wheel's own
# CMake package, which asks for a CUDA toolkit. FOLDER is the folder `torch` of the wheel.

# ndmesh_add_libtorch(FOLDER): the target ndmesh::libtorch.
function(ndmesh_add_libtorch folder)
  add_library(ndmesh::libtorch INTERFACE IMPORTED)
  # -idirafter, not -isystem: the wheel carries its own fmt, which must not hide the system's.
  target_compile_options(ndmesh::libtorch INTERFACE "SHELL:-idirafter ${folder}/include"
                         "SHELL:-idirafter ${folder}/include/torch/csrc/api/include")
  target_link_libraries(ndmesh::libtorch INTERFACE ${folder}/lib/libtorch.so ${folder}/lib/libtorch_cpu.so
                        ${folder}/lib/libc10.so)
endfunction()

# ndmesh_add_libtorch_cuda(FOLDER): ndmesh::libtorch with the wheel's CUDA libraries. What they need in turn (NCCL, cuBLAS) they
# find beside the wheel. --no-as-needed: nothing calls libtorch_cuda by name, it registers its kernels when it is loaded.
function(ndmesh_add_libtorch_cuda folder)
  if(NOT EXISTS ${folder}/lib/libtorch_cuda.so)
    message(FATAL_ERROR "NDMESH_CUDA=ON, but NDMESH_TORCH=${folder} is a CPU wheel (no lib/libtorch_cuda.so). Give the folder "
                        "`torch` of a CUDA wheel, -DNDMESH_TORCH=FOLDER, or configure without NDMESH_CUDA (preset release).")
  endif()
  target_link_libraries(ndmesh::libtorch INTERFACE -Wl,--no-as-needed ${folder}/lib/libtorch_cuda.so -Wl,--as-needed
                        ${folder}/lib/libc10_cuda.so)
endfunction()

# ndmesh_torch_version(FOLDER OUT): "2.13.0", of a CPU and a CUDA wheel alike; empty where FOLDER holds no torch wheel.
function(ndmesh_torch_version folder out)
  set(version "")
  if(EXISTS ${folder}/version.py AND EXISTS ${folder}/lib/libtorch_cpu.so)
    file(STRINGS ${folder}/version.py line REGEX "^__version__ = ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${line}")
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()
