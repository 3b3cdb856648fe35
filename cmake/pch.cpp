// Carries the precompiled header: see NdmeshTorch.cmake.
