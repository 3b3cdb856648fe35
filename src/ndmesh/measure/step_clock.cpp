#include "ndmesh/measure/step_clock.h"

#include "ndmesh/base/clock.h"

namespace ndmesh::measure {

void StepClock::begin() {
  times_ = {};
  part_ = Part::other;
  begun_ = part_begun_ = now_seconds();
  exposed_in_part_ = bubble_in_part_ = 0;
}

void StepClock::close_part() {
  const double now = now_seconds();
  times_[part_] += now - part_begun_ - exposed_in_part_ - bubble_in_part_;
  times_[Part::exposed] += exposed_in_part_;
  times_[Part::bubble] += bubble_in_part_;
  if (observer_ && now > part_begun_) {
    observer_(part_, part_begun_, now);
  }
  part_begun_ = now;
  exposed_in_part_ = bubble_in_part_ = 0;
}

void StepClock::enter(Part part) {
  close_part();
  part_ = part;
}

void StepClock::add(const comm::CollectiveRecord& record) {
  const bool sent = record.op == comm::Op::send;
  const bool message = sent || record.op == comm::Op::recv;
  const double bubble = message ? record.skew + (sent ? record.transfer : 0) : 0;
  const double transfer = sent ? 0 : record.transfer;
  Exposed& exposed = times_.exposed[record.group->name() + "/" + std::string(comm::name_of(record.op))];
  exposed.skew += message ? 0 : record.skew;
  exposed.transfer += transfer;
  exposed_in_part_ += (message ? 0 : record.skew) + transfer;
  bubble_in_part_ += bubble;
}

StepTimes StepClock::end() {
  close_part();
  times_.total = part_begun_ - begun_;
  return times_;
}

}  // namespace ndmesh::measure
