<?php

declare(strict_types=1);

/**
 * Runs one task for `lapsed`:  php task.php CLASS METHOD ARG...   with the task as JSON on stdin.
 *
 * Exit: 0 done; 65 cannot succeed, bury it; anything else, a crash included, try again later.
 * Messages go to stderr.
 */

const DONE = 0;
const PERMANENT = 65;
const RETRY = 75;

ini_set('display_errors', 'stderr');
set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    throw new ErrorException($text, 0, $level, $file, $line);
});

require_once __DIR__ . '/connections.php';
require_once __DIR__ . '/AuctionCutDown.php';

/**
 * Everything a task may reach. A key is data that anybody with access to Redis can write, so its class and method are
 * looked up here and never turned into a class or method name.
 */
$auction = static function (?string $id): AuctionCutDown {
    $tasks = new AuctionCutDown(connect_db(), connect_redis());

    return $id === null ? $tasks : $tasks->running($id);
};
$allowed = [
    'AuctionCutDown' => [
        'auctionEndCutDown' => static fn (?string $id, array $args) => $auction($id)->auctionEndCutDown($args),
        'dealCutDown' => static fn (?string $id, array $args) => $auction($id)->dealCutDown($args),
    ],
];

/** The task as `lapsed` sends it; null when run by hand. */
function task_from_stdin(): ?array
{
    if (stream_isatty(STDIN)) {
        return null;
    }
    $json = stream_get_contents(STDIN);
    if ($json === false || $json === '') {
        return null;
    }
    $task = json_decode($json, true, 64, JSON_THROW_ON_ERROR);
    if (!is_array($task) || !is_string($task['id'] ?? null)) {
        throw new UnexpectedValueException('stdin is not the JSON of a task');
    }

    return $task;
}

try {
    [, $class, $method] = $argv + [1 => '', 2 => ''];
    $run = $allowed[$class][$method] ?? throw new PermanentFailure('no such task: ' . json_encode("$class@$method"));
    $run(task_from_stdin()['id'] ?? null, array_slice($argv, 3));
    exit(DONE);
} catch (PermanentFailure $e) {
    fwrite(STDERR, $e->getMessage() . "\n");
    exit(PERMANENT);
} catch (Throwable $e) {
    fwrite(STDERR, $e::class . ': ' . $e->getMessage() . ' (' . basename($e->getFile()) . ':' . $e->getLine() . ")\n");
    exit(RETRY);
}
