<?php
// The packages of think-queue and hyperf themselves, instead of their commands, from a directory with `think-queue` and `hyperf`:
// checkouts of top-think/think-queue and hyperf/hyperf. What they need of their frameworks is replaced by as little as they use.

namespace think {
    class App
    {
    }
}

namespace think\helper {
    class Str
    {
        public static function random(int $length): string
        {
            return substr(bin2hex(random_bytes($length)), 0, $length);
        }
    }

    class Arr
    {
        public static function get($array, $key, $default = null)
        {
            return $array[$key] ?? $default;
        }
    }
}

namespace Psr\Container {
    interface ContainerInterface
    {
        public function get(string $id);

        public function has(string $id): bool;
    }
}

namespace Psr\EventDispatcher {
    interface EventDispatcherInterface
    {
        public function dispatch(object $event);
    }
}

namespace Hyperf\Redis {
    class RedisProxy
    {
        public function __construct(private \Redis $redis)
        {
        }

        public function __call($name, $arguments)
        {
            return $this->redis->$name(...$arguments);
        }
    }

    class RedisFactory
    {
        public function __construct(private \Redis $redis)
        {
        }

        public function get(string $pool): RedisProxy
        {
            return new RedisProxy($this->redis);
        }
    }
}

namespace Hyperf\Support {
    function make(string $class, array $arguments = [])
    {
        return new $class(...array_values($arguments));
    }
}

namespace {
    require_once 'Carbon/autoload.php';
    spl_autoload_register(function (string $class) {
        $directory = getenv('LAPSED_TEST_PHP_PACKAGES');
        $places = [
            'think\\queue\\' => '/think-queue/src/queue/',
            'Hyperf\\AsyncQueue\\' => '/hyperf/src/async-queue/src/',
            'Hyperf\\Codec\\' => '/hyperf/src/codec/src/',
            'Hyperf\\Contract\\' => '/hyperf/src/contract/src/',
        ];
        foreach ($places as $namespace => $place) {
            if (str_starts_with($class, $namespace)) {
                require $directory . $place . str_replace('\\', '/', substr($class, strlen($namespace))) . '.php';
            }
        }
    });

    class PackageOfThinkQueue extends Framework
    {
        private $queue;

        public function __construct(Redis $redis, bool $polls)
        {
            parent::__construct($redis, $polls);
            $this->queue = new class ($redis, 'default', 6, 1) extends think\queue\connector\Redis {
                public bool $polls = true;

                public function migrateExpiredJobs($from, $to, $attempt = true)
                {
                    if ($this->polls || !str_ends_with($from, ':delayed')) {
                        parent::migrateExpiredJobs($from, $to, $attempt);
                    }
                }
            };
            $this->queue->polls = $polls;
            $this->queue->setApp(new think\App());
        }

        public function later(string $name, int $delay): array
        {
            $job = str_starts_with($name, 'object-') ? new SerializedJob($name) : 'app\\job\\Shop@run';
            return [null, $this->queue->later($delay, $job, ['name' => $name])];
        }

        public function pop(): ?array
        {
            $job = $this->queue->pop('default');
            return $job ? [$job->payload('data')['name'], $job->attempts(), $job] : null;
        }

        public function done($job): void
        {
            $job->delete();
        }

        public function retry($job, int $delay): void
        {
            $job->release($delay);
        }
    }

    class PackagedJob extends Hyperf\AsyncQueue\Job
    {
        public function __construct(public string $name)
        {
            $this->maxAttempts = 3;
        }

        public function handle()
        {
        }
    }

    class DriverOfHyperf extends Hyperf\AsyncQueue\Driver\RedisDriver
    {
        public bool $polls = true;

        protected function move(string $from, string $to): void
        {
            if ($this->polls || !str_ends_with($from, ':delayed')) {
                parent::move($from, $to);
            }
        }

        public function tryAgain($data, $message): void
        {
            // As the driver does with the result RETRY.
            $this->remove($data) && $message->attempts() && $this->retry($message);
        }
    }

    class PackageOfHyperf extends Framework implements Psr\Container\ContainerInterface
    {
        private $driver;

        public function __construct(Redis $redis, bool $polls)
        {
            parent::__construct($redis, $polls);
            $config = ['channel' => '{queue}', 'timeout' => 1, 'retry_seconds' => 2, 'handle_timeout' => 10];
            $this->driver = new DriverOfHyperf($this, $config);
            $this->driver->polls = $polls;
        }

        public function get(string $id)
        {
            return match ($id) {
                Hyperf\Redis\RedisFactory::class => new Hyperf\Redis\RedisFactory($this->redis),
                Hyperf\Codec\Packer\PhpSerializerPacker::class => new $id(),
                default => null,
            };
        }

        public function has(string $id): bool
        {
            return true;
        }

        public function later(string $name, int $delay): array
        {
            $job = new PackagedJob($name);
            $this->driver->push($job, $delay);
            return [serialize(new Hyperf\AsyncQueue\JobMessage($job)), null];
        }

        public function pop(): ?array
        {
            [$data, $message] = $this->driver->pop();
            return $data === false ? null : [$message->job()->name, $message->getAttempts() + 1, [$data, $message]];
        }

        public function done($job): void
        {
            $this->driver->ack($job[0]);
        }

        public function retry($job, int $delay): void
        {
            $this->driver->tryAgain(...$job);
        }
    }
}
