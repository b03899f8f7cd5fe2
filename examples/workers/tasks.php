<?php

declare(strict_types=1);

/** The server of `LAPSED_WORKER_REDIS`, `redis://[user:password@]host[:port][/database]`: the one of `redis.url`. */
function connect_redis(): Redis
{
    $url = getenv('LAPSED_WORKER_REDIS') ?: 'redis://127.0.0.1:6379/0';
    $at = parse_url($url);
    if ($at === false || ($at['scheme'] ?? '') !== 'redis' || !isset($at['host'])) {
        throw new RuntimeException('LAPSED_WORKER_REDIS is not `redis://[user:password@]host[:port][/database]`');
    }
    $redis = new Redis();
    // Longer than a blocking read waits.
    $redis->connect($at['host'], $at['port'] ?? 6379, 2.0, null, 0, 10.0);
    if (isset($at['pass'])) {
        $password = rawurldecode($at['pass']);
        $redis->auth(($at['user'] ?? '') === '' ? $password : [rawurldecode($at['user']), $password]);
    }
    $redis->select((int) ltrim($at['path'] ?? '', '/'));

    return $redis;
}

/**
 * Runs a task unless it has been run: tasks arrive at least once, and `id` stays the same.
 *
 * Who dies between the work and the note does the work again. Effects in a database can have it exactly: insert the id
 * into a table with a unique key, in the transaction of the effects.
 */
function run_once(Redis $redis, array $task): void
{
    $done = "worker:done:{$task['id']}";
    if ($redis->exists($done)) {
        return;
    }
    handle($task);
    $redis->set($done, '1', ['EX' => 7 * 24 * 3600]);
}

/** What there is to do. Class and method choose among what is listed here; they never become names of code. */
function handle(array $task): void
{
    match ("{$task['class']}@{$task['method']}") {
        'Order@close' => print("closing order {$task['args'][0]}\n"),
        'Mail@remind' => print("reminding customer {$task['args'][0]}\n"),
        default => fwrite(STDERR, "unknown task {$task['key']}\n"),
    };
}
