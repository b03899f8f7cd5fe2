# Schedules jobs as a program with Sidekiq does.
#
# Arguments: the port of Redis. Input: [[name, delay in seconds]]. Output: [{"id", "due"}], in the same order.
require "json"
require "sidekiq"
require "sidekiq/api"

port = ARGV.fetch(0)
Sidekiq.configure_client { |config| config.redis = {url: "redis://127.0.0.1:#{port}/0"} }
Sidekiq.logger.level = Logger::FATAL

class CloseOrder
  include Sidekiq::Worker
  def perform(*) = nil
end

ids = JSON.parse($stdin.read).map { |name, delay| CloseOrder.perform_in(delay, name) }
due = Sidekiq::ScheduledSet.new.to_h { |job| [job.jid, (job.score * 1000).floor] }
puts JSON.generate(ids.map { |id| {id: id, due: due.fetch(id)} })
