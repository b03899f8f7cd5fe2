<?php

declare(strict_types=1);

// Works off the stream of a `stream` route:  php stream.php [how many, then end]
// Any number of these may run: each task goes to one of them, and comes to another if that one dies.

require __DIR__ . '/tasks.php';

// A warning, such as one about a missing argument, is a failure.
set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    throw new ErrorException($text, 0, $level, $file, $line);
});

const STREAM = 'lapsed:orders';
const GROUP = 'workers';
const ABANDONED_MS = 60_000; // longer than any task takes
const DELIVERIES_MAX = 5; // an entry that fails as often is moved to FAILED
const FAILED = 'lapsed:orders:failed';

$left = (int) ($argv[1] ?? PHP_INT_MAX);
$me = gethostname() . ':' . getmypid();
$redis = connect_redis();
// From the beginning of the stream; a group that is there stays as it is.
$redis->xGroup('CREATE', STREAM, GROUP, '0', true);

while ($left > 0) {
    // What another worker took and never acknowledged; else what is new, and up to two seconds for something to come.
    $entries = [];
    // By hand: phpredis has xAutoClaim from version 6 on.
    $claimed = $redis->rawCommand('XAUTOCLAIM', STREAM, GROUP, $me, (string) ABANDONED_MS, '0-0', 'COUNT', '1');
    foreach (array_filter($claimed[1] ?? []) as [$entry, $flat]) {
        $entries[$entry] = array_column(array_chunk($flat, 2), 1, 0);
    }
    if ($entries === []) {
        $entries = $redis->xReadGroup(GROUP, $me, [STREAM => '>'], 1, 2000)[STREAM] ?? [];
    }
    foreach ($entries as $entry => $fields) {
        $left--;
        try {
            run_once($redis, json_decode($fields['task'], true, flags: JSON_THROW_ON_ERROR));
        } catch (RedisException $e) {
            throw $e;
        } catch (Throwable $e) {
            fwrite(STDERR, "$entry failed: " . $e->getMessage() . "\n");
            $delivered = $redis->xPending(STREAM, GROUP, $entry, $entry, 1)[0][3] ?? 0;
            if ($delivered < DELIVERIES_MAX) {
                continue; // not acknowledged: some worker takes it again after ABANDONED_MS
            }
            $redis->xAdd(FAILED, '*', $fields, 10_000);
        }
        // Only now: whoever dies before this leaves the task to another worker.
        $redis->xAck(STREAM, GROUP, [$entry]);
    }
}
