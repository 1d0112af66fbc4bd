#include "actors/intake_worker.hpp"

#include <chrono>

namespace deepinfer {

intake_outcome take_in(const request_intake& intake, const generate_request& asked,
                       std::uint64_t drawn_seed) {
  const auto begin = std::chrono::steady_clock::now();
  auto accepted = intake.accept(asked, drawn_seed);
  const auto took = std::chrono::steady_clock::now() - begin;
  return {std::move(accepted), std::chrono::duration_cast<std::chrono::microseconds>(took).count()};
}

intake_worker_actor::behavior_type intake_worker(intake_worker_actor::pointer self,
                                                 std::shared_ptr<const request_intake> intake,
                                                 caf::actor_addr owner) {
  self->set_down_handler([self](caf::down_msg&) { self->quit(); });
  self->monitor(owner);
  return {
    [intake = std::move(intake)](const intake_job_ptr& job) {
      return std::make_shared<intake_outcome>(take_in(*intake, job->asked, job->drawn_seed));
    },
  };
}

}  // namespace deepinfer
