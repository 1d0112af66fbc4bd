/// Launched steps as the worker keeps them: WorkerStepState of the article, in a ring of depth + 1.
///
///   vacant -> launched -> finished -> vacant    the completion came in time
///                      -> overdue  -> vacant    the ticket ran out; the completion came late
/// A step owns its staging slot (its place in the ring), its plan and its device work from launch
/// until its completion has arrived [I22][I23], also when it was reported as failed before: a
/// time-out is not a completion. A completion is bound to (step, generation); one meant for an
/// earlier user of the place is told apart and changes nothing [I24]. Steps are reported once, in
/// launch order [I01].
/// Single-threaded; reuses its places. Errors: DI_CHECK for a broken caller.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

enum class worker_step_stage : std::uint8_t { vacant, launched, finished, overdue };

struct worker_step_state {
  worker_step_stage stage = worker_step_stage::vacant;
  step_id step;
  std::uint64_t generation = 0;           ///< grows with every use of the place
  std::int32_t staging = 0;               ///< staging slot, in [0, depth]
  bool is_reported = false;               ///< its result is on its way to the scheduler
  std::shared_ptr<const step_plan> plan;  ///< rows and remap
  std::shared_ptr<device_work> work;
  device_status status;  ///< valid once finished
  phase_times times;
};

/// What a completion meant.
enum class completion_kind : std::uint8_t {
  in_time,  ///< the step has finished; report it when it is the oldest
  proof,    ///< it was overdue: what it touched is free to go [release_queue::prove]
  unknown,  ///< of an earlier use of the place, or a repeat: nothing changed
};

class worker_step_ring {
public:
  explicit worker_step_ring(std::int32_t depth);

  /// May the next step be launched? False: `depth` steps are unreported, or the place it would take
  /// still belongs to an overdue step; then, with nothing left to report, the rank is lost.
  bool can_open() const;

  /// Takes the place of plan->step, which follows the last one opened. The caller attaches work.
  worker_step_state& open(std::shared_ptr<const step_plan> plan);

  /// The launched step, finished or not, that still has its place; null: there is none.
  worker_step_state* find(step_id step);

  /// The device has ended a step's last phase.
  completion_kind complete(step_id step, std::uint64_t generation, const device_status& status,
                           const phase_times& times);

  /// A ticket ran out. False: the completion was there already, or the step is not known.
  bool expire(step_id step, std::uint64_t generation);

  /// The oldest unreported step, if it has finished or is overdue; else null.
  worker_step_state* reportable();

  /// Its result has been built: a finished step leaves its place, an overdue one keeps it until its
  /// completion.
  void report(worker_step_state& state);

  /// Steps launched and not reported.
  std::int32_t in_flight() const { return static_cast<std::int32_t>(opened_ - reported_); }
  /// Steps whose work may still run.
  std::int32_t unfinished() const;

private:
  worker_step_state& place_of(std::uint64_t step) { return ring_[step % ring_.size()]; }
  const worker_step_state& place_of(std::uint64_t step) const { return ring_[step % ring_.size()]; }
  static void vacate(worker_step_state& state);

  std::vector<worker_step_state> ring_;
  std::uint64_t opened_ = 0;    ///< newest step opened
  std::uint64_t reported_ = 0;  ///< newest step reported
};

}  // namespace deepinfer
