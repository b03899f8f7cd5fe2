<?php

declare(strict_types=1);

/**
 * Settings come from the environment:
 *
 *   LAPSED_PHP_DSN       mysql:host=127.0.0.1;port=3306;dbname=lapsed   or   mysql:unix_socket=/run/mysqld/mysqld.sock;dbname=lapsed
 *   LAPSED_PHP_USER      lapsed
 *   LAPSED_PHP_PASSWORD  try-it
 *   LAPSED_PHP_REDIS     redis://127.0.0.1:6379/0   or   unix:///run/redis/redis.sock?db=0
 *
 * An exec target of `lapsed` starts with an empty environment plus the names in `env` of its route: list these there.
 */
function setting(string $name, string $default): string
{
    $value = getenv($name);

    return $value === false ? $default : $value;
}

function connect_db(): PDO
{
    return new PDO(
        setting('LAPSED_PHP_DSN', 'mysql:host=127.0.0.1;port=3306;dbname=lapsed') . ';charset=utf8mb4',
        setting('LAPSED_PHP_USER', 'lapsed'),
        setting('LAPSED_PHP_PASSWORD', 'try-it'),
        [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_EMULATE_PREPARES => false,
            PDO::ATTR_TIMEOUT => 5,
        ],
    );
}

function connect_redis(): Redis
{
    $url = setting('LAPSED_PHP_REDIS', 'redis://127.0.0.1:6379/0');
    $redis = new Redis();
    if (str_starts_with($url, 'unix://')) {
        [$path, $db] = explode('?db=', substr($url, strlen('unix://'))) + [1 => '0'];
        $redis->connect($path);
        $redis->select((int) $db);

        return $redis;
    }
    $at = parse_url($url);
    if ($at === false || ($at['scheme'] ?? '') !== 'redis' || !isset($at['host'])) {
        throw new RuntimeException('LAPSED_PHP_REDIS is not `redis://[:password@]host[:port][/db]` or `unix://path[?db=N]`');
    }
    $redis->connect($at['host'], $at['port'] ?? 6379, 2.0, null, 0, 2.0);
    if (isset($at['pass'])) {
        $redis->auth(isset($at['user']) && $at['user'] !== '' ? [$at['user'], $at['pass']] : $at['pass']);
    }
    $redis->select((int) ltrim($at['path'] ?? '', '/'));

    return $redis;
}
