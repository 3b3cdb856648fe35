# The public headers, by area; docs/library.md says what each gives. What they include is installed with them.

set(NDMESH_PLANNER_HEADERS
    base/error.h
    base/log.h
    base/units.h
    model/config.h
    cluster/cluster.h
    mesh/mesh.h
    mesh/rules.h
    layout/layout.h
    job/job.h
    plan/memory.h
    plan/search/answer.h
    plan/serving/serving.h)

set(NDMESH_RUNTIME_HEADERS
    comm/world.h
    nn/ports.h
    nn/functional.h
    parallel/fully_shard.h
    parallel/recompute.h
    parallel/replicate.h
    measure/memory_ledger.h
    train/adamw.h
    train/muon.h
    train/sgd.h
    train/gradient_norm.h
    train/lr_schedule.h
    train/parameter_file.h
    train/run.h
    train/safetensors.h
    train/thread_count.h)
