// Plans with the installed library: prints the best mesh, as `ndmesh plan` finds it, and what a wrong job is refused with.
#include <ndmesh/base/error.h>
#include <ndmesh/plan/search/answer.h>

#include <cstdio>

using namespace ndmesh;

int main() {
  const job::Job job = job::parse_job("", "consumer", {"model.preset=llama-3-8b", "cluster=2x8xH100-SXM"});
  const cluster::Cluster cluster = cluster::parse_cluster(job.cluster, "cluster");
  const plan::TrainingAnswer answer =
      plan::answer(plan::training_question(job, job::model_of(job), cluster), /*top=*/1);
  std::printf("best: %s\n", answer.result.plans.front().candidate.mesh.name().c_str());
  try {
    job::parse_job("", "consumer", {"mesh.tp_size=0", "batch.globl=4"});
  } catch (const RequestError& error) {
    std::printf("refused: %zu problems\n%s\n", error.problems().size(), error.what());
    return 0;
  }
  return 1;
}
