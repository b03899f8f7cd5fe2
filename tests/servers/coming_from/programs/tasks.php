<?php
// The tasks of rows of `delay_queue`: write down the name. RAN is where.

return [
    'App\\Job::run' => static function (mixed $name): void {
        $before = is_file('RAN') ? file_get_contents('RAN') : '';
        $attempt = substr_count($before, json_encode($name)) + 1;
        $line = json_encode(['name' => $name, 'attempt' => $attempt, 'at_ms' => (int) (microtime(true) * 1000)]);
        file_put_contents('RAN', "$line\n", FILE_APPEND | LOCK_EX);
        if (str_starts_with($name, 'never')) {
            throw new RuntimeException('cannot succeed', 10000);
        }
        if (str_starts_with($name, 'fail') && $attempt === 1) {
            throw new RuntimeException('not yet');
        }
    },
];
