<?php
// phpredis. Arguments: the port or the path of a socket, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects.

[, $port, $key] = $argv;
$redis = new Redis();
$port[0] === '/' ? $redis->connect($port) : $redis->connect('127.0.0.1', (int) $port);

function text(mixed $answer): string
{
    return match ($answer) {
        true => 'OK',
        false => 'nil',
        default => (string) $answer,
    };
}

function said(string $step, mixed $answer): void
{
    echo $step, ': ', is_array($answer) ? implode(' ', array_map(text(...), $answer)) : text($answer), "\n";
}

function refused(string $step, string ...$words): void
{
    global $redis;
    $redis->rawCommand(...$words);
    said($step, $redis->getLastError());
}

said('setex', $redis->setex("{$key}1", 1000, '{"order":42}'));
said('set px', $redis->set("{$key}2", '', ['px' => 2000000]));
said('ttl', $redis->ttl("{$key}1"));
said('pttl', $redis->pttl("{$key}2"));
said('get', $redis->get("{$key}1"));
said('get missing', $redis->get("{$key}9"));
said('exists', $redis->exists("{$key}1", "{$key}2", "{$key}9"));
said('expire', (int) $redis->expire("{$key}2", 3000));
said('ttl moved', $redis->ttl("{$key}2"));
said('del', $redis->del("{$key}1"));
said('del again', $redis->del("{$key}1"));
$pipeline = $redis->multi(Redis::PIPELINE)->setex("{$key}3", 1000, 'a')->setex("{$key}4", 1000, 'b');
said('pipeline', $pipeline->exists("{$key}3")->del("{$key}3")->ttl("{$key}3")->exec());
said('multi', $redis->multi()->setex("{$key}5", 1000, 'a')->del("{$key}4")->pttl("{$key}9")->exec());
refused('unknown', 'NOSUCH', "{$key}1", '7');
refused('arity', 'SETEX', "{$key}1", '10');
