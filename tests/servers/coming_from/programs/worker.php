<?php
// Runs a task: writes down its name and attempt. A name that begins with `fail` fails at the first attempt.
//
// Arguments: where to write; the name, if it is neither in the payload nor the argument of the key.

[, $ran] = $argv;
$task = json_decode(stream_get_contents(STDIN), true, 64, JSON_THROW_ON_ERROR);
$payload = $task['payload'] ?? [];
$name = $argv[2] ?? $payload['uid'] ?? $payload[0] ?? $payload['data']['name'] ?? $task['args'][0];
$line = json_encode(['name' => $name, 'attempt' => $task['attempt'], 'at_ms' => (int) (microtime(true) * 1000)]);
file_put_contents($ran, "$line\n", FILE_APPEND | LOCK_EX);
exit(str_starts_with($name, 'fail') && $task['attempt'] === 1 ? 75 : 0);
