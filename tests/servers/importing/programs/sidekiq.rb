# Schedules jobs as a program with Sidekiq does, and lets one fail.
#
# Arguments: the port of Redis. Output: [{"set", "jid", "at"}], by Sidekiq's own view of its sets.
require "json"
require "sidekiq"
require "sidekiq/api"
require "sidekiq/job_retry"

port = ARGV.fetch(0)
Sidekiq.configure_client { |config| config.redis = {url: "redis://127.0.0.1:#{port}/0"} }
Sidekiq.logger.level = Logger::FATAL

class HardWorker
  include Sidekiq::Worker
  sidekiq_options queue: "mail", retry: 5
  def perform(*) = raise "the shop is closed"
end

module Shop
  class Close
    include Sidekiq::Worker
    sidekiq_options retry: false
    def perform(*) = nil
  end
end

start = Time.now.to_f + 3600
HardWorker.perform_at(start + 0.123, 42, "unpaid", {"amount" => 1.5})
Shop::Close.perform_at(start + 1.987654, "拍賣")
Shop::Close.perform_in(7200)

# The code that runs around a job, with a job that fails for the second time.
failed = {"class" => "HardWorker", "args" => [7], "jid" => "f" * 24, "queue" => "mail", "retry" => 5, "retry_count" => 0}
begin
  Sidekiq::JobRetry.new.local(HardWorker.new, Sidekiq.dump_json(failed), "mail") { raise "the shop is closed" }
rescue Sidekiq::JobRetry::Handled
end

sets = {"schedule" => Sidekiq::ScheduledSet.new, "retry" => Sidekiq::RetrySet.new}
jobs = sets.flat_map { |name, set| set.map { |job| {set: name, jid: job.jid, at: job.score} } }
puts JSON.generate(jobs.sort_by { |job| job[:at] })
