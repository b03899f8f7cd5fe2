<?php

declare(strict_types=1);

/** The server of `LAPSED_WORKER_REDIS`, `host:port`. */
function connect_redis(): Redis
{
    [$host, $port] = explode(':', getenv('LAPSED_WORKER_REDIS') ?: '127.0.0.1:6379');
    $redis = new Redis();
    // Longer than a blocking read waits.
    $redis->connect($host, (int) $port, 2.0, null, 0, 10.0);

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
