<?php

declare(strict_types=1);

/**
 * Runs one row of `delay_queue`:  php run-delay-queue.php ID   with the task of `lapsed` as JSON on stdin.
 *
 * Exit: 0 done, or nothing to do; 65 never again; 75 try again later.
 *
 * A row stays at status 1 while it may be tried again, so that the next attempt runs it. It gets status 20 when no attempt
 * follows: after code 10000, and after the last attempt.
 *
 * Settings come from the environment: DELAY_QUEUE_DSN, DELAY_QUEUE_USER, DELAY_QUEUE_PASSWORD. List them in `env` of the route.
 */

const DONE = 0;
const PERMANENT = 65;
const RETRY = 75;

const WAITS = 1;
const SUCCEEDED = 10;
const FAILED = 20;

/** The code of an exception after which the old command did not retry. */
const NEVER_AGAIN = 10000;

ini_set('display_errors', 'stderr');
set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    throw new ErrorException($text, 0, $level, $file, $line);
});

function setting(string $name, string $default): string
{
    $value = getenv($name);

    return $value === false ? $default : $value;
}

/** Changes a row that still waits: a program may have cancelled it meanwhile. */
function write(PDO $db, string $id, int $status, string $message): void
{
    $update = $db->prepare(
        'UPDATE delay_queue SET status = ?, message = ?, modified = ? WHERE id = ? AND status = ' . WAITS
    );
    $update->execute([$status, shortened($message), date('Y-m-d H:i:s'), $id]);
}

/** The column has 255 characters; a byte is at most one. */
function shortened(string $text): string
{
    $short = substr($text, 0, 255);

    return preg_match('//u', $short) === 1 ? $short : preg_replace('/[\x80-\xff]+$/', '', $short);
}

/** Runs the row. Returns the exit code. */
function run(string $id, bool $isLast): int
{
    $db = new PDO(
        setting('DELAY_QUEUE_DSN', 'mysql:host=127.0.0.1;dbname=app') . ';charset=utf8mb4',
        setting('DELAY_QUEUE_USER', 'app'),
        setting('DELAY_QUEUE_PASSWORD', ''),
        [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => false, PDO::ATTR_TIMEOUT => 5],
    );
    $select = $db->prepare('SELECT status, params FROM delay_queue WHERE id = ?');
    $select->execute([$id]);
    $row = $select->fetch(PDO::FETCH_ASSOC);
    if ($row === false) {
        fwrite(STDERR, "delay_queue has no row $id\n");

        return PERMANENT;
    }
    if ((int) $row['status'] !== WAITS) {
        return DONE;
    }
    try {
        // A row is data: it names one of the tasks in this list, and never a class or a method of the program.
        $tasks = require __DIR__ . '/tasks.php';
        $params = unserialize($row['params'], ['allowed_classes' => false]);
        $name = ($params['class'] ?? '') . '::' . ($params['method'] ?? '');
        $task = $tasks[ltrim($name, '\\')] ?? throw new RuntimeException("tasks.php has no $name", NEVER_AGAIN);
        $task($params['data'] ?? null);
    } catch (Throwable $e) {
        $message = date('Y-m-d H:i:s') . " [error] {$e->getMessage()}";
        $never = $e->getCode() === NEVER_AGAIN;
        write($db, $id, $never || $isLast ? FAILED : WAITS, $message);
        fwrite(STDERR, "$message\n");

        return $never ? PERMANENT : RETRY;
    }
    write($db, $id, SUCCEEDED, date('Y-m-d H:i:s') . " [info] success: $id");

    return DONE;
}

$id = $argv[1] ?? '';
if (preg_match('/^[0-9]+$/D', $id) !== 1) {
    fwrite(STDERR, "expected the id of a row\n");
    exit(PERMANENT);
}
try {
    $task = json_decode((string) stream_get_contents(STDIN), true, 64, JSON_THROW_ON_ERROR);
    exit(run($id, ($task['last'] ?? false) === true));
} catch (Throwable $e) {
    // The database did not answer, for instance: the row is as it was.
    fwrite(STDERR, $e::class . ": {$e->getMessage()}\n");
    exit(RETRY);
}
