# A pull worker. Needs the gem redis:  ruby worker.rb [host:port]
require "json"
require "redis"

$stdout.sync = true
host, port = (ARGV[0] || "127.0.0.1:6380").split(":")
connect = -> { Redis.new(host: host, port: port.to_i, timeout: 10) } # replies come within 10 s, BLOCK included
lapsed, renewing = connect.call, connect.call

class Permanent < StandardError; end

# Raises an error to fail. Returns the result, which `lapsed show` prints.
def work(task)
  mail = JSON.parse(task["payload"] || "{}")
  raise Permanent, mail["error"] if mail["error"]
  sleep mail["seconds"] || 0
  { sent_to: task["args"] }
end

loop do
  taken = lapsed.call("LAPSED.TAKE", "mail", "COUNT", "10", "BLOCK", "5000", "WORKER", "ruby")
  tasks = taken.map { |flat| flat.each_slice(2).to_h }
  tasks.each_with_index do |task, at|
    renewal = Thread.new do
      claims = tasks[at..].map { |left| left["claim"] }
      loop { renewing.call("LAPSED.RENEW", *claims); sleep 0.5 } # a third of `visibility`, or less
    end
    begin
      report = ["LAPSED.DONE", task["claim"], "RESULT", JSON.generate(work(task))]
    rescue StandardError => error
      report = ["LAPSED.FAIL", task["claim"], error.message, *("PERMANENT" if error.is_a?(Permanent))]
    end
    renewal.kill.join
    lapsed.call(*report)
    puts "#{task["key"]} #{report[0]}"
  end
end
