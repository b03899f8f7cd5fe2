<?php
// Producers and workers of frameworks, with the commands that each sends to Redis. Laravel is the package of Debian. With
// LAPSED_TEST_PHP_PACKAGES think-queue and hyperf are their packages, see packages.php. The others
// follow top-think/think-queue:src/queue/connector/Redis.php, walkor/redis-queue:src/Client.php with
// webman-php/redis-queue:src/RedisConnection.php, and hyperf/hyperf:src/async-queue/src/Driver/RedisDriver.php.
//
//     php frameworks.php FRAMEWORK produce PORT           standard input: JSON of [[name, delay], ..]
//     php frameworks.php FRAMEWORK work PORT FILE POLLS   writes a line for each run to FILE; POLLS: 1 or 0
//
// What becomes of a job is in its name: `fail-` fails once and is tried again after 2 s; `crash-` kills its worker, once.
// `object-` is a serialized object.

abstract class Framework
{
    public function __construct(protected Redis $redis, protected bool $polls)
    {
    }

    /** Schedules a job. Returns its member, or null if the framework does not tell, and its id. */
    abstract public function later(string $name, int $delay): array;

    /** Waits for a job, a second at most. Returns its name and attempt, and what its end needs. */
    abstract public function pop(): ?array;

    abstract public function done($job): void;

    abstract public function retry($job, int $delay): void;
}

/** A job that is an object. */
class SerializedJob
{
    public function __construct(public string $name)
    {
    }
}

class Laravel extends Framework
{
    private $queue;

    public function __construct(Redis $redis, bool $polls, int $port)
    {
        require_once 'Illuminate/Queue/autoload.php';
        require_once 'Illuminate/Redis/autoload.php';
        $app = new Illuminate\Container\Container();
        $options = ['host' => '127.0.0.1', 'port' => $port, 'database' => 0];
        $manager = new Illuminate\Redis\RedisManager($app, 'phpredis', [
            'default' => $options, 'options' => ['prefix' => 'shop_database_'],
        ]);
        // retry_after and block_for, as in config/queue.php.
        $class = $polls ? Illuminate\Queue\RedisQueue::class : LaravelWithoutPoller::class;
        $this->queue = new $class($manager, 'default', null, 6, 1);
        $this->queue->setContainer($app);
        $this->queue->setConnectionName('redis');
        parent::__construct($redis, $polls);
    }

    public function later(string $name, int $delay): array
    {
        $job = str_starts_with($name, 'object-') ? new SerializedJob($name) : 'App\\Jobs\\Shop@run';
        return [null, $this->queue->later($delay, $job, ['name' => $name])];
    }

    public function pop(): ?array
    {
        $job = $this->queue->pop('default');
        return $job ? [$job->payload()['data']['name'], $job->attempts(), $job] : null;
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

class ThinkQueue extends Framework
{
    private const QUEUE = '{queues:default}';

    public function later(string $name, int $delay): array
    {
        $id = bin2hex(random_bytes(16));
        $job = ['job' => 'app\\job\\Shop@run', 'maxTries' => null, 'timeout' => null, 'data' => ['name' => $name]];
        if (str_starts_with($name, 'object-')) {
            $command = ['commandName' => SerializedJob::class, 'command' => serialize(new SerializedJob($name))];
            $job = ['job' => 'think\\queue\\CallQueuedHandler@call', 'timeoutAt' => null, 'data' => $command] + $job;
        }
        $member = json_encode($job + ['id' => $id, 'attempts' => 0]);
        $this->redis->zAdd(self::QUEUE . ':delayed', time() + $delay, $member);
        return [$member, $id];
    }

    public function pop(): ?array
    {
        $this->migrate($this->polls ? [':delayed', ':reserved'] : [':reserved']);
        $popped = $this->redis->blPop(self::QUEUE, 1);
        if (!$popped) {
            return null;
        }
        $job = json_decode($popped[1], true);
        $job['attempts']++;
        $reserved = json_encode($job);
        $this->redis->zAdd(self::QUEUE . ':reserved', time() + 6, $reserved);
        return [$job['data']['name'], $job['attempts'], $reserved];
    }

    private function migrate(array $sets): void
    {
        foreach ($sets as $set) {
            $from = self::QUEUE . $set;
            $this->redis->watch($from);
            $jobs = $this->redis->zRangeByScore($from, '-inf', (string) time());
            if ($jobs) {
                $this->redis->multi();
                $this->redis->zRemRangeByRank($from, 0, count($jobs) - 1);
                $this->redis->rPush(self::QUEUE, ...$jobs);
                $this->redis->exec();
            }
            $this->redis->unwatch();
        }
    }

    public function done($job): void
    {
        $this->redis->zRem(self::QUEUE . ':reserved', $job);
    }

    public function retry($job, int $delay): void
    {
        $this->redis->zRem(self::QUEUE . ':reserved', $job);
        $this->redis->zAdd(self::QUEUE . ':delayed', time() + $delay, $job);
    }
}

class Webman extends Framework
{
    private int $polled = 0;

    public function later(string $name, int $delay): array
    {
        $id = time() . rand();
        $member = json_encode([
            'id' => $id, 'time' => time(), 'delay' => $delay, 'attempts' => 0, 'queue' => 'send-mail',
            'data' => ['name' => $name],
        ]);
        $this->redis->zAdd('{redis-queue}-delayed', time() + $delay, $member);
        return [$member, $id];
    }

    public function pop(): ?array
    {
        if ($this->polls && $this->polled < time()) {
            $this->polled = time();
            $due = ['limit' => [0, 128]];
            foreach ($this->redis->zRevRangeByScore('{redis-queue}-delayed', (string) time(), '-inf', $due) as $member) {
                if ($this->redis->zRem('{redis-queue}-delayed', $member) === 1) {
                    $this->redis->lPush('{redis-queue}-waiting' . json_decode($member, true)['queue'], $member);
                }
            }
        }
        $popped = $this->redis->brPop('{redis-queue}-waitingsend-mail', 1);
        if (!$popped) {
            return null;
        }
        $job = json_decode($popped[1], true);
        return [$job['data']['name'], $job['attempts'] + 1, $job];
    }

    public function done($job): void
    {
    }

    public function retry($job, int $delay): void
    {
        $job['max_attempts'] = 5;
        $job['error'] = 'failed';
        $job['attempts']++;
        $member = json_encode($job, JSON_UNESCAPED_UNICODE | JSON_PRETTY_PRINT);
        $this->redis->zAdd('{redis-queue}-delayed', time() + $delay, $member);
    }
}

/** A job and its message, serialized as hyperf does. */
class ShopJob
{
    protected int $maxAttempts = 3;

    public function __construct(public string $name)
    {
    }
}

class JobMessage
{
    protected int $attempts = 0;

    public function __construct(protected ShopJob $job)
    {
    }

    public function __serialize(): array
    {
        return ['job' => $this->job, 'attempts' => $this->attempts];
    }

    public function __unserialize(array $data): void
    {
        [$this->job, $this->attempts] = [$data['job'], $data['attempts']];
    }

    public function name(): string
    {
        return $this->job->name;
    }

    public function attempt(): int
    {
        return ++$this->attempts;
    }
}

class Hyperf extends Framework
{
    public function later(string $name, int $delay): array
    {
        $member = serialize(new JobMessage(new ShopJob($name)));
        $this->redis->zAdd('{queue}:delayed', time() + $delay, $member);
        return [$member, null];
    }

    public function pop(): ?array
    {
        $this->move('{queue}:reserved', '{queue}:timeout');
        if ($this->polls) {
            $this->move('{queue}:delayed', '{queue}:waiting');
        }
        $popped = $this->redis->brPop('{queue}:waiting', 1);
        if (!$popped) {
            return null;
        }
        $this->redis->zAdd('{queue}:reserved', time() + 10, $popped[1]);
        $message = unserialize($popped[1]);
        return [$message->name(), $message->attempt(), [$popped[1], $message]];
    }

    private function move(string $from, string $to): void
    {
        foreach ($this->redis->zRevRangeByScore($from, (string) time(), '-inf', ['limit' => [0, 100]]) as $member) {
            if ($this->redis->zRem($from, $member)) {
                $this->redis->lPush($to, $member);
            }
        }
    }

    public function done($job): void
    {
        $this->redis->zRem('{queue}:reserved', $job[0]);
    }

    public function retry($job, int $delay): void
    {
        $this->redis->zRem('{queue}:reserved', $job[0]);
        $this->redis->zAdd('{queue}:delayed', time() + $delay, serialize($job[1]));
    }
}

[, $framework, $role, $port] = $argv;
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $port);
$polls = ($argv[5] ?? '0') === '1';
if ($framework === 'laravel') {
    require_once 'Illuminate/Queue/autoload.php';

    /** A worker that leaves the delayed jobs to others. */
    class LaravelWithoutPoller extends Illuminate\Queue\RedisQueue
    {
        public function migrateExpiredJobs($from, $to)
        {
            return str_ends_with($from, ':delayed') ? [] : parent::migrateExpiredJobs($from, $to);
        }
    }
}
$packages = getenv('LAPSED_TEST_PHP_PACKAGES') !== false && in_array($framework, ['think-queue', 'hyperf']);
if ($packages) {
    require_once __DIR__ . '/packages.php';
}
$queue = match ($packages ? "package of $framework" : $framework) {
    'package of think-queue' => new PackageOfThinkQueue($redis, $polls),
    'package of hyperf' => new PackageOfHyperf($redis, $polls),
    'laravel' => new Laravel($redis, $polls, (int) $port),
    'think-queue' => new ThinkQueue($redis, $polls),
    'webman' => new Webman($redis, $polls),
    'hyperf' => new Hyperf($redis, $polls),
};

if ($role === 'produce') {
    $written = [];
    foreach (json_decode(stream_get_contents(STDIN), true) as [$name, $delay]) {
        // A job is due then or a second later.
        $due = time() + $delay;
        [$member, $id] = $queue->later($name, $delay);
        $written[] = ['name' => $name, 'id' => $id, 'due_s' => $due, 'member' => $member === null ? null : base64_encode($member)];
    }
    echo json_encode($written);
    exit;
}

$file = $argv[4];
while (true) {
    $popped = $queue->pop();
    if ($popped === null) {
        continue;
    }
    [$name, $attempt, $job] = $popped;
    $line = json_encode(['name' => $name, 'attempt' => $attempt, 'at_ms' => (int) (microtime(true) * 1000)]);
    file_put_contents($file, "$line\n", FILE_APPEND);
    if (str_starts_with($name, 'crash-') && !file_exists("$file-$name")) {
        touch("$file-$name");
        posix_kill(posix_getpid(), 9);
    }
    if (str_starts_with($name, 'fail-') && $attempt === 1) {
        $queue->retry($job, 2);
    } else {
        $queue->done($job);
    }
}
