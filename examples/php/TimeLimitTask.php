<?php

declare(strict_types=1);

/**
 * Base class of timed tasks, as programs on Redis + MySQL have it: a task is an expiring Redis key
 * `Class@method@arg@arg...` and a row of `tb_time_limit_task`. It needs no change to work with `lapsed`.
 *
 * It knows the six columns of the old table (id and the five it writes) and none of those that `lapsed` adds.
 *
 * The row is what counts. `lapsed` writes a row for a key that has none, unless adoption is off (`adopt.enabled = false`).
 */
abstract class TimeLimitTask
{
    private const TABLE = 'tb_time_limit_task';
    private const DUPLICATE_KEY = 1062;

    /** @var array{int, int}|null row id and `end_time` in ms of the run in progress */
    private ?array $run = null;

    public function __construct(protected readonly PDO $db, protected readonly Redis $redis)
    {
    }

    /** Schedules `$method` in `$ttl` seconds; called again with the same arguments, moves it. */
    public function create(string $method, int $ttl = 0, array $params = []): void
    {
        $key = $this->key_splice($method, $params);
        $now = time() * 1000;
        $this->recording_mysql($key, $now, $now + $ttl * 1000);
        if (!$this->redis->setex($key, $ttl, '')) {
            throw new RuntimeException("Redis refused to arm $key", 500);
        }
    }

    /** Schedules `$method` in `$ttl` milliseconds. */
    public function create_ms(string $method, int $ttl = 0, array $params = []): void
    {
        $key = $this->key_splice($method, $params);
        $now = (int) floor(microtime(true) * 1000);
        $this->recording_mysql($key, $now, $now + $ttl);
        if (!$this->redis->psetex($key, $ttl, '')) {
            throw new RuntimeException("Redis refused to arm $key", 500);
        }
    }

    /** Seconds until the key expires; -2 when there is none. */
    public function getTTL(string $method, array $params = []): int|false
    {
        return $this->redis->ttl($this->key_splice($method, $params));
    }

    /** Milliseconds until the key expires; -2 when there is none. */
    public function getPTTL(string $method, array $params = []): int|false
    {
        return $this->redis->pttl($this->key_splice($method, $params));
    }

    /**
     * Cancels a task: marks the row as deleted, then deletes the key.
     *
     * The count of deleted keys says nothing about the task: a key that is due but not yet removed counts as 0.
     */
    public function del_key(string $method, array $params = []): int|false
    {
        $key = $this->key_splice($method, $params);
        $this->execute('UPDATE ' . self::TABLE . ' SET sts = 1 WHERE `key` = ?', [$key]);

        return $this->redis->del($key);
    }

    /**
     * Says which run the next call belongs to, from the `id` of the task JSON (`<row id>-<end_time ms>`).
     *
     * Not in the old class. With it, a handler can mark only the arming that it was started for.
     */
    public function running(string $taskId): static
    {
        $parts = explode('-', $taskId);
        if (count($parts) !== 2 || !ctype_digit($parts[0]) || !ctype_digit($parts[1])) {
            throw new InvalidArgumentException("task id `$taskId` is not `<row id>-<end_time ms>`");
        }
        $this->run = [(int) $parts[0], (int) $parts[1]];

        return $this;
    }

    /** `Class@method@arg...`, the class without its namespace. */
    protected function key_splice(string $method, array $params = []): string
    {
        $class = explode('\\', static::class);

        return implode('@', [end($class), $method, ...array_values($params)]);
    }

    /**
     * Marks the row as processed. In one transaction with the effects, both happen or neither does.
     *
     * Not needed with `lapsed`, which marks the row when the handler succeeds, but honoured.
     */
    protected function recording_process_mysql(string $key): void
    {
        if ($this->run === null) {
            // As the old class did. If the task was created anew meanwhile, this marks the newer arming.
            $this->execute('UPDATE ' . self::TABLE . ' SET status = 1 WHERE `key` = ?', [$key]);
            return;
        }
        [$id, $end_ms] = $this->run;
        $marked = $this->execute(
            'UPDATE ' . self::TABLE . ' SET status = 1'
                . ' WHERE id = ? AND `key` = ? AND end_time = CAST(? AS DECIMAL(13,3)) AND status = 0',
            [$id, $key, self::decimal($end_ms)],
        );
        if ($marked !== 1) {
            throw new RuntimeException("$key was finished or created anew while it ran");
        }
    }

    /** Runs `$work` in a transaction; any throw rolls back. */
    protected function transaction(callable $work): void
    {
        $this->db->beginTransaction();
        try {
            $work();
            $this->db->commit();
        } catch (Throwable $e) {
            if ($this->db->inTransaction()) {
                $this->db->rollBack();
            }
            throw $e;
        }
    }

    /** Runs one statement; answers how many rows it changed. */
    protected function execute(string $sql, array $values): int
    {
        $statement = $this->db->prepare($sql);
        $statement->execute($values);

        return $statement->rowCount();
    }

    /** The row comes first, then the key: a lost key is found again, a lost row is not. */
    private function recording_mysql(string $key, int $start_ms, int $end_ms): void
    {
        $times = [self::decimal($start_ms), self::decimal($end_ms)];
        $find = $this->db->prepare('SELECT id FROM ' . self::TABLE . ' WHERE `key` = ?');
        $find->execute([$key]);
        if ($find->fetchColumn() === false) {
            try {
                $this->execute(
                    'INSERT INTO ' . self::TABLE . ' (`key`, status, start_time, end_time, sts) VALUES (?, 0, ?, ?, 0)',
                    [$key, ...$times],
                );
                return;
            } catch (PDOException $e) {
                // `lapsed` made the key unique: another process inserted the row after we looked. Ours is an update then.
                if (($e->errorInfo[1] ?? 0) !== self::DUPLICATE_KEY) {
                    throw $e;
                }
            }
        }
        // `sts` stays as it is, even after del_key: `lapsed` sees the armed key and revives the row.
        $this->execute(
            'UPDATE ' . self::TABLE . ' SET status = 0, start_time = ?, end_time = ? WHERE `key` = ?',
            [...$times, $key],
        );
    }

    /** Unix milliseconds as the table's seconds.milliseconds, without a float in between. */
    private static function decimal(int $ms): string
    {
        return sprintf('%d.%03d', intdiv($ms, 1000), $ms % 1000);
    }
}
