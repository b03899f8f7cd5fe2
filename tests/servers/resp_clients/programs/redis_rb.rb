# redis-rb. Arguments: the port, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects.
require "redis"

port, key = ARGV
redis = Redis.new(host: "127.0.0.1", port: port.to_i)

def text(answer) = answer.nil? ? "nil" : answer.to_s

def said(step, answer) = puts("#{step}: #{answer.is_a?(Array) ? answer.map { |one| text(one) }.join(" ") : text(answer)}")

def refused(step)
  yield
rescue Redis::CommandError => error
  said(step, error.message)
end

said("setex", redis.setex("#{key}1", 1000, '{"order":42}'))
said("set px", redis.set("#{key}2", "", px: 2_000_000))
said("ttl", redis.ttl("#{key}1"))
said("pttl", redis.pttl("#{key}2"))
said("get", redis.get("#{key}1"))
said("get missing", redis.get("#{key}9"))
said("exists", redis.exists("#{key}1", "#{key}2", "#{key}9"))
said("expire", redis.expire("#{key}2", 3000) ? 1 : 0)
said("ttl moved", redis.ttl("#{key}2"))
said("del", redis.del("#{key}1"))
said("del again", redis.del("#{key}1"))
answers = redis.pipelined do |pipeline|
  pipeline.setex("#{key}3", 1000, "a")
  pipeline.setex("#{key}4", 1000, "b")
  pipeline.exists("#{key}3")
  pipeline.del("#{key}3")
  pipeline.ttl("#{key}3")
end
said("pipeline", answers)
answers = redis.multi do |transaction|
  transaction.setex("#{key}5", 1000, "a")
  transaction.del("#{key}4")
  transaction.pttl("#{key}9")
end
said("multi", answers)
refused("unknown") { redis.call("NOSUCH", "#{key}1", "7") }
refused("arity") { redis.call("SETEX", "#{key}1", "10") }
